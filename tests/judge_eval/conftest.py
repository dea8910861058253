"""Gradings of the shipped answers by a judge that often fails, and answers generated from the sample."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.database import open_database
from sql_agent.judge_eval.dataset import shipped
from sql_agent.judge_eval.evaluate import Grading, JudgeEvaluation, grade_all
from sql_agent.judge_eval.examples import Example
from sql_agent.judge_eval.generation import generate
from sql_agent.judge_eval.robustness import Graded, grade_generated
from sql_agent.questions.judge_examples import read_example
from sql_agent.questions.question_files import load_questions
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.examples import REFUSAL
from tests.support.judge_evaluation import OftenFailing, measured


@pytest.fixture(scope="session")
def graded_by_often_failing() -> tuple[OftenFailing, list[Grading], JudgeEvaluation]:
    judge = OftenFailing()
    gradings = asyncio.run(grade_all(judge, shipped("labels"), shipped("attacks")))
    return judge, gradings, measured(gradings, judge=judge.name)


@pytest.fixture(scope="session")
def sample_examples(sample_of: Callable[[Lang], tuple[Path, Path]]) -> list[Example]:
    """Every second test question about the sample of both languages, with what its queries return.

    `sql-agent judge evaluate` asks them all.
    """
    examples: list[Example] = []
    for lang in get_args(Lang):
        path, folder = sample_of(lang)
        questions = load_questions(folder / "test.parquet")
        with open_database(path, TASK.schema) as database:
            examples += [read_example(question, database) for question in questions[::2]]
    return examples


@pytest.fixture(scope="session")
def graded_by_facts(sample_examples: list[Example]) -> list[Graded]:
    return asyncio.run(grade_generated(FactsJudge(TASK.words), generate(sample_examples, REFUSAL)))
