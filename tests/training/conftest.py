"""The tiny model, loaded once; tests that change its weights load it themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.training.policy.model import Policy, load_policy


@pytest.fixture(scope="session")
def policy(tiny_model_folder: Path) -> Policy:
    return load_policy(str(tiny_model_folder), cache_dir=tiny_model_folder)
