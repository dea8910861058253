"""The sample database of each language, with its questions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Lang
from sql_agent.tasks.described.splits import SHARES
from tests.support.medical_questions import Made


@pytest.fixture(scope="session", params=["en", "zh"])
def sample(request: pytest.FixtureRequest, sample_of: Callable[[Lang], tuple[Path, Path]]) -> tuple[Path, Made]:
    """The sample database of one language and its questions as the command line writes them."""
    database, folder = sample_of(request.param)
    return database, {split: load_questions(folder / f"{split}.parquet") for split in SHARES}
