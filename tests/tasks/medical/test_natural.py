"""The natural benchmark: its gold SQL runs on the shipped samples, and its references earn full marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.database import DatabasePool
from sql_agent.errors import DataError
from sql_agent.questions.question_check import check_questions, count_quotes
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Lang
from sql_agent.tasks.medical import medical_task
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.sample import build_database, load_facts

AT_LEAST = 200  # questions in each language
TYPES = [
    (lang, task_type)
    for lang in get_args(Lang)
    for task_type in sorted({q.task_type or "" for q in medical_task.natural_questions(lang)})
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabasePool]:
    """The samples by the names that the questions have, queried within the limits of a run."""
    folder = tmp_path_factory.mktemp("samples")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(medical_task, "VAR", folder)
        for lang in get_args(Lang):
            build_database(load_facts(), lang, medical_task.sample_path(lang))
        with TASK.databases(load_settings()) as databases:
            yield databases


@pytest.mark.parametrize("lang", get_args(Lang))
def test_there_are_enough_of_them_each_asked_once_in_its_language(lang: Lang, samples: DatabasePool) -> None:
    questions = TASK.natural_questions(lang)
    assert len(questions) >= AT_LEAST
    assert len({q.question for q in questions}) == len({q.id for q in questions}) == len(questions)
    assert {q.lang for q in questions} == {lang}
    assert not {q.id for q in questions} & {q.id for other in get_args(Lang) if other != lang
                                            for q in TASK.natural_questions(other)}  # fmt: skip
    assert count_quotes(questions, samples) == (sum(len(q.evidence) for q in questions), 0)


@pytest.mark.parametrize(("lang", "task_type"), TYPES)
@pytest.mark.slow
def test_the_gold_sql_of_each_finds_what_its_reference_says_and_the_judge_agrees(
    lang: Lang, task_type: str, samples: DatabasePool
) -> None:
    questions = [q for q in TASK.natural_questions(lang) if q.task_type == task_type]
    checked = check_questions(questions, samples, TASK.words, FactsJudge(TASK.words))
    assert len(checked) == len(questions)
    assert [c.question.id for c in checked if not c.question.statements] == [], "without SQL"
    assert [(c.question.id, c.failure) for c in checked if c.failure] == []
    assert [c.question.id for c in checked if c.needs_rows and not c.returns_rows] == []
    assert [(c.question.id, c.earned, c.reason) for c in checked if c.earned != pytest.approx(1.0)] == []
    assert {Path(str(c.database)).name for c in checked} == {f"sample_{lang}.db"}


def test_a_question_about_a_database_that_is_no_sample_says_which_there_are(samples: DatabasePool) -> None:
    with pytest.raises(DataError, match="has only sample_zh and sample_en") as error, samples.of("hospital"):
        pass
    assert "database.path" in (error.value.hint or "")


def test_a_run_on_another_database_still_asks_them_of_the_sample(samples: DatabasePool, tmp_path: Path) -> None:
    settings = load_settings([f"database.path={tmp_path / 'mine.db'}"])
    with TASK.databases(settings).of(TASK.natural_questions("en")[0].database) as database:
        assert database.source == medical_task.sample_path("en")


@pytest.mark.parametrize(("lang", "least"), [("zh", 200), ("en", 150)])
def test_the_benchmark_of_a_real_database_is_complete(lang: Lang, least: int) -> None:
    questions = TASK.real_questions(lang)
    assert len(questions) >= least and len({q.id for q in questions}) == len({q.question for q in questions})
    assert all(q.statements and q.lang == lang for q in questions)
    unread = {q.task_type for q in questions if not q.evidence}
    assert unread == {"count", "unanswerable"}
    quotes = [(cell.quote, q) for q in questions for cell in q.evidence if q.task_type != "yes_no"]
    assert all(quote in q.answer for quote, q in quotes), "a cell's quote is a fact of the answer"
