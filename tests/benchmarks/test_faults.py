"""No rollout is lost unreported while parts of a run are killed at random."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from faults import run_with_kills


@pytest.mark.slow
def test_every_rollout_is_kept_or_reported_while_parts_are_killed(tmp_path: Path, tiny_model_folder: Path) -> None:
    figures = run_with_kills(
        tmp_path, model=tiny_model_folder, rollouts=32, per_step=16, runners=2, every=1.0, latency=0.2, seed=1
    )
    assert figures.accounted_for, figures.output
    assert sum(figures.killed.values()) >= 1
    assert max(figures.delays_s, default=0.0) < 5
