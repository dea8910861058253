"""Gradings of the shipped answers by a judge that often fails, and answers generated from the sample."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.database import open_database
from sql_agent.judge_eval.answers import Example, generate, load_labelled
from sql_agent.judge_eval.evaluation import Evaluation, Grading, grade
from sql_agent.questions.question_check import read_example
from sql_agent.questions.question_files import load_questions
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.items import Reader
from sql_agent.reward.rule_reward import rule_reward
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.examples import REFUSAL
from tests.support.judge_evaluation import OftenFailing, measured


@pytest.fixture(scope="session")
def graded_by_often_failing() -> tuple[OftenFailing, list[Grading], Evaluation]:
    judge = OftenFailing()
    answers = [case.of_set("labels") for case in load_labelled("labels")]
    answers += [case.of_set("attacks") for case in load_labelled("attacks")]
    gradings = asyncio.run(grade(judge, answers))
    return judge, gradings, measured(gradings, judge)


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
            reader = Reader(TASK.words[lang])
            examples += [read_example(q, database, reader, TASK.schema.names) for q in questions[::2]]
    return examples


@pytest.fixture(scope="session")
def graded_by_facts(sample_examples: list[Example]) -> list[tuple[Grading, float]]:
    """The gradings of `facts`, each with the rule's part of the reward."""
    answers = generate(sample_examples, REFUSAL)
    gradings = asyncio.run(grade(FactsJudge(TASK.words), answers))
    return [(g, rule_reward(answer.case.calls)) for g, answer in zip(gradings, answers, strict=True)]
