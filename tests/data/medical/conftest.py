"""The sample database of each language, with its questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.data.medical.splits import SHARES
from sql_agent.data.question_files import load_questions
from tests.support.medical_questions import Made, questions_folder


@pytest.fixture(scope="session", params=["en", "zh"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """The sample database of one language and its questions as the command line writes them."""
    database, folder = questions_folder(tmp_path_factory.mktemp("sample"), request.param, "sample")
    return database, {split: load_questions(folder / f"{split}.parquet") for split in SHARES}
