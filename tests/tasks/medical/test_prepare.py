"""A run makes the sample that it lacks, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import ConfigError
from sql_agent.questions.question_files import load_questions
from sql_agent.tasks.medical import medical_task
from sql_agent.tasks.medical.medical_task import TASK, make_question_files

pytestmark = pytest.mark.slow  # makes questions about a sample, which takes seconds


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let a run in an empty project make its missing files, with few questions; return the printed messages."""
    monkeypatch.setattr(medical_task, "VAR", tmp_path)
    monkeypatch.setattr(medical_task, "make_question_files", partial(make_question_files, per_type=3))

    def ensure(*overrides: str) -> list[str]:
        said: list[str] = []
        medical_task.ensure_sample(load_settings(overrides), said.append)
        return said

    return ensure


def test_a_run_without_a_database_of_its_own_makes_the_sample_once(heard: Callable[..., list[str]]) -> None:
    said = heard("lang=zh")
    assert "77 drugs" in said[0] and "questions about it" in said[1]
    settings = load_settings(["lang=zh"])
    with TASK.open_database(settings) as database:
        assert database.query("SELECT COUNT(*) FROM drugs_info").records == ((77,),)
    assert {q.lang for q in load_questions(TASK.question_file(settings, "train"))} == {"zh"}
    assert heard("lang=zh") == [], "what is there stays as it is"


def test_a_run_may_ask_in_plain_templates_which_are_kept_beside_the_others(heard: Callable[..., list[str]]) -> None:
    plain = ("lang=en", "data.style=template")
    assert len(heard(*plain)) == 2
    made = load_questions(TASK.question_file(load_settings(plain), "train"))
    lookups = [q for q in made if q.task_type == "lookup"]
    tables = medical_task.description("en").tables
    for question in lookups:
        (cell,) = question.evidence
        assert tables[cell.table].columns[cell.field].labels in question.question and len(question.statements) == 1
    assert len(heard("lang=en")) == 1, "the mixed questions are still to be made"


def test_only_what_a_run_uses_is_made(heard: Callable[..., list[str]], tmp_path: Path) -> None:
    own = tmp_path / "own.parquet"
    assert len(heard(f"data.train_file={own}", f"data.val_file={own}")) == 1, "the database alone"
    assert heard(f"database.path={tmp_path / 'mine.db'}") == []
    said = heard(f"database.path={tmp_path / 'mine.db'}", "lang=zh", "data.natural_questions=1")
    assert len(said) == 1 and "sample_zh.db" in said[0], "which the natural questions are about"


def test_questions_about_another_database_are_never_taken_for_those_of_the_users(
    heard: Callable[..., list[str]], tmp_path: Path
) -> None:
    heard()
    with pytest.raises(ConfigError, match=r"no train questions of the task medical at .*questions_mine") as error:
        TASK.question_file(load_settings([f"database.path={tmp_path / 'mine.db'}"]), "train")
    assert "questions --db" in (error.value.hint or "")
