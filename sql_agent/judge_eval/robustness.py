"""Measure what a judge pays for generated answers: right ones in other forms, false ones, and degenerate policies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.generation import Generated, Kind
from sql_agent.judge_eval.grading import RESULT_FILE, grade_cases, spent_on
from sql_agent.judge_eval.policies import POLICIES
from sql_agent.judge_eval.transformations.falsifying import FALSE
from sql_agent.judge_eval.transformations.harmless import HARMLESS
from sql_agent.reward.judges.base import Judge, Verdict
from sql_agent.schemas import Question, Record, Usage

HALF = 0.5  # what earns this much may be taken for right
ENOUGH = 5  # answers of one transformation; fewer say little
NOTABLE = 0.1  # a smaller difference between score and due is not shown


@dataclass(frozen=True)
class Graded:
    """A generated answer and the judge's verdict on it, or the error why there is none."""

    generated: Generated
    verdict: Verdict | None = None
    error: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def score(self) -> float:
        """The judge's score. Raises JudgeError when the grading failed: there is no score to take instead."""
        if self.verdict is None:
            raise JudgeError(self.error)
        return self.verdict.score

    @property
    def too_much(self) -> float:
        """By how much the score is above what was due; below 0 it is under that."""
        return self.score - self.generated.due

    def row(self) -> dict[str, Any]:
        """One line of gradings.jsonl: with score, criteria and reason, or with the error in their place."""
        question = self.generated.case.question
        outcome = {"error": self.error} if self.verdict is None else self.verdict.model_dump(mode="json")
        return {
            "kind": self.generated.kind,
            "name": self.generated.name,
            "question_id": question.id,
            "task_type": question.task_type,
            "lang": question.lang,
            "answer": self.generated.case.answer,
            "due": self.generated.due,
            **outcome,
        }


class Earned(Record):
    """What `graded` answers earned; `failed` more could not be graded and count nowhere.

    `due` is the mean that they should have earned, `half_or_more` how many earned at least 0.5, `full` how many 1.0.
    """

    graded: int
    failed: int
    due: float
    mean: float | None
    lowest: float | None
    highest: float | None
    half_or_more: int
    full: int


class Result(Record):
    """What the answers of one transformation or policy earned: all, by language and by task type."""

    kind: Kind
    name: str
    description: str
    total: Earned
    by_lang: dict[str, Earned] = Field(default_factory=dict)
    by_task_type: dict[str, Earned] = Field(default_factory=dict)


class Robustness(Record):
    """All numbers of one evaluation without labels, as evaluation.json holds them."""

    date: str
    judge: str
    files: tuple[str, ...]
    questions: int
    unanswerable: int
    answers: int
    failed: int
    max_failed_share: float
    usage: Usage
    results: tuple[Result, ...]

    @property
    def failed_share(self) -> float:
        return self.failed / self.answers

    @property
    def too_many_failed(self) -> bool:
        return self.failed_share > self.max_failed_share

    def of_kind(self, kind: Kind) -> list[Result]:
        """Return the results of one kind in the order in which they were measured."""
        return [result for result in self.results if result.kind == kind]

    @property
    def worst_false(self) -> Result | None:
        """The false transformation that earned most in the mean, of those with enough answers."""
        enough = [result for result in self.of_kind("false") if result.total.graded >= ENOUGH]
        return max(enough, key=lambda result: result.total.mean or 0.0, default=None)

    def summary(self) -> Robustness:
        """Return the numbers without their parts by language and task type."""
        results = (result.model_copy(update={"by_lang": {}, "by_task_type": {}}) for result in self.results)
        return self.model_copy(update={"results": tuple(results)})


async def grade_generated(
    judge: Judge, answers: Sequence[Generated], on_done: Callable[[int], None] = lambda _: None
) -> list[Graded]:
    """Grade generated answers, in their order. `on_done` takes how many are done."""
    outcomes = await grade_cases(judge, [answer.case for answer in answers], on_done)
    return [
        Graded(answer, outcome, usage=spent_on(outcome))
        if isinstance(outcome, Verdict)
        else Graded(answer, error=str(outcome), usage=spent_on(outcome))
        for answer, outcome in zip(answers, outcomes, strict=True)
    ]


def measure_robustness(
    graded: Sequence[Graded], *, judge: str, files: Iterable[str], max_failed_share: float
) -> Robustness:
    """Measure what each transformation and policy earned. Failed gradings are counted and otherwise left out."""
    questions = {question.model_dump_json(): question for question in (g.generated.case.question for g in graded)}
    usage = sum((g.usage for g in graded), start=Usage())
    return Robustness(
        date=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        judge=judge,
        files=tuple(files),
        questions=len(questions),
        unanswerable=sum(question.task_type == "unanswerable" for question in questions.values()),
        answers=len(graded),
        failed=sum(g.verdict is None for g in graded),
        max_failed_share=max_failed_share,
        usage=usage,
        results=tuple(_results(graded)),
    )


def worst(graded: Iterable[Graded], kind: Kind, *, of_each: int | None = None) -> list[Graded]:
    """Return the answers of a kind whose score is notably far from what was due, the furthest first.

    With `of_each`, at most that many of one transformation or policy.
    """
    wrong = [g for g in graded if g.generated.kind == kind and g.verdict is not None and abs(g.too_much) >= NOTABLE]
    seen: Counter[str] = Counter()
    found = []
    for g in sorted(wrong, key=lambda g: -abs(g.too_much)):
        seen[g.generated.name] += 1
        if of_each is None or seen[g.generated.name] <= of_each:
            found.append(g)
    return found


def causes_of_failure(graded: Iterable[Graded]) -> list[tuple[str, int]]:
    """Return why gradings failed, and how many of them for that reason; the most frequent first."""
    return Counter(g.error for g in graded if g.verdict is None).most_common()


def write_robustness(folder: Path, robustness: Robustness, graded: Iterable[Graded]) -> None:
    """Write evaluation.json and, with one object a graded answer, gradings.jsonl."""
    rows = (json.dumps(g.row(), ensure_ascii=False) for g in graded)
    (folder / "gradings.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    (folder / RESULT_FILE).write_text(robustness.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _results(graded: Iterable[Graded]) -> Iterator[Result]:
    groups: dict[str, list[Graded]] = {}
    for g in graded:
        groups.setdefault(g.generated.name, []).append(g)
    made: list[tuple[Kind, tuple[Callable[..., Any], ...]]]
    made = [("harmless", HARMLESS), ("false", FALSE), ("policy", POLICIES)]
    for kind, functions in made:
        for function in functions:
            if group := groups.get(function.__name__):
                yield Result(
                    kind=kind,
                    name=function.__name__,
                    description=(function.__doc__ or "").partition("\n")[0],
                    total=_earned(group),
                    by_lang=_earned_by(group, lambda question: question.lang),
                    by_task_type=_earned_by(group, lambda question: question.task_type or "other"),
                )


def _earned_by(graded: Iterable[Graded], key: Callable[[Question], str]) -> dict[str, Earned]:
    groups: dict[str, list[Graded]] = {}
    for g in graded:
        groups.setdefault(key(g.generated.case.question), []).append(g)
    return {name: _earned(group) for name, group in sorted(groups.items())}


def _earned(graded: Sequence[Graded]) -> Earned:
    kept = [g for g in graded if g.verdict is not None]
    scores = [g.score for g in kept]
    return Earned(
        graded=len(kept),
        failed=len(graded) - len(kept),
        due=sum(g.generated.due for g in graded) / len(graded),
        mean=sum(scores) / len(scores) if scores else None,
        lowest=min(scores, default=None),
        highest=max(scores, default=None),
        half_or_more=sum(score >= HALF for score in scores),
        full=sum(score == 1.0 for score in scores),
    )
