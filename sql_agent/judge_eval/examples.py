"""Define what a judge is evaluated on without labels: questions, with what queries about them returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import TypeVar

from sql_agent.reward.judges.base import JudgeCase
from sql_agent.schemas import Evidence, Lang, QueryCall, Question

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """Queries and which part of a question's evidence they read."""

    calls: tuple[QueryCall, ...] = ()
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Example:
    """A question and three ways to query for it.

    `gold` is its gold SQL, `rows` the same with every column, `tables` reads the whole tables of its gold SQL.
    """

    question: Question
    gold: Reading
    rows: Reading
    tables: Reading

    def case(self, answer: str, reading: Reading) -> JudgeCase:
        """Return what a judge sees when a rollout read `reading` and gave `answer`."""
        return JudgeCase(question=self.question, answer=answer, calls=reading.calls, evidence_read=reading.evidence)


def refusals(questions: Iterable[Question]) -> Mapping[Lang, str]:
    """Return the reference answer of unanswerable questions by language; a language without such questions has none."""
    return {question.lang: question.answer for question in questions if question.task_type == "unanswerable"}


def sample_evenly(questions: Sequence[tuple[Question, T]], number: int) -> list[tuple[Question, T]]:
    """Return `number` of `questions`, as equally many of each language and task type as there are; always the same."""
    groups: dict[tuple[str, str | None], list[tuple[Question, T]]] = {}
    for pair in questions:
        groups.setdefault((pair[0].lang, pair[0].task_type), []).append(pair)
    rounds = zip_longest(*(Random(0).sample(group, len(group)) for group in groups.values()))
    return [pair for one_of_each in rounds for pair in one_of_each if pair is not None][:number]
