"""Define a judge: it takes one case and gives a verdict, or raises JudgeError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pydantic import Field

from sql_agent.schemas import Evidence, QueryCall, Question, Record, Usage


class JudgeCase(Record):
    """The input of a judge: the question with its reference, the agent's final answer, and its queries in order.

    `evidence_read` is the part of the question's evidence that the queries read (see database/provenance.py); None
    where that was not recorded. `row_names` are all names of the row of each item of the question's evidence; empty
    where they were not looked up.
    """

    question: Question
    answer: str
    calls: tuple[QueryCall, ...] = ()
    evidence_read: tuple[Evidence, ...] | None = None
    row_names: tuple[tuple[str, ...], ...] = ()


class Verdict(Record):
    """A judge's score in 0.0–1.0, the criteria that led to it, one sentence of why, and what it cost.

    A criterion is in 0.0–1.0; one that only takes points away, such as safety, is in -1.0–0.0.
    """

    score: float = Field(ge=0.0, le=1.0)
    criteria: dict[str, float] = Field(default_factory=dict)
    reason: str = ""
    usage: Usage = Usage()


@runtime_checkable
class Judge(Protocol):
    """Grades cases. A judge that wraps others (a panel, a cache) has the same interface."""

    @property
    def name(self) -> str:
        """The name in records, metrics and messages."""
        ...

    @property
    def identity(self) -> str:
        """The kind of judge with a version, and the settings that decide a verdict, such as model and rubric.

        Raise the version when prompts or rules change: another identity is another judge, to be evaluated anew.
        """
        ...

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case; raises JudgeError when no score can be given, which drops the rollout."""
        ...


@runtime_checkable
class GroupJudge(Judge, Protocol):
    """A judge that also compares the answers to one question; its `grade` is the score of an answer by itself."""

    async def rank(self, cases: Sequence[JudgeCase], own: Sequence[Verdict]) -> list[Verdict]:
        """Return one verdict for each case, in order, given what `grade` made of each by itself.

        Raises JudgeError when the cases could not be compared.
        """
        ...
