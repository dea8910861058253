"""Grade labelled answers and attacks with a judge, and measure how far its scores can be trusted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.agreement import MEASURES, Estimate, Values, estimate
from sql_agent.judge_eval.dataset import LabelledCase
from sql_agent.judge_eval.grading import RESULT_FILE, grade_cases, spent_on
from sql_agent.reward.judges.base import Judge, Verdict
from sql_agent.schemas import Record, Usage

ATTACK_LIMIT = 0.15  # an attack that earns more than this got through


@dataclass(frozen=True)
class Grading:
    """What the judge made of one labelled answer: a verdict, or the error why there is none."""

    set: Literal["labels", "attacks"]
    case: LabelledCase
    verdict: Verdict | None = None
    error: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def task_type(self) -> str:
        return self.case.question.task_type or "other"

    @property
    def kind(self) -> str:
        return self.case.kind or "other"

    @property
    def score(self) -> float:
        """The judge's score. Raises JudgeError when the grading failed: there is no score to take instead."""
        if self.verdict is None:
            raise JudgeError(self.error)
        return self.verdict.score

    def row(self) -> dict[str, Any]:
        """One line of gradings.jsonl: with score, criteria and reason, or with the error in their place."""
        outcome = {"error": self.error} if self.verdict is None else self.verdict.model_dump(mode="json")
        return {
            "set": self.set,
            "question_id": self.case.question.id,
            "task_type": self.task_type,
            "lang": self.case.question.lang,
            "kind": self.kind,
            "answer": self.case.answer,
            "label": self.case.label,
            **outcome,
        }


class Agreement(Record):
    """A judge against the labels of one group: `answers` were graded, `failed` more were not and count nowhere."""

    answers: int
    failed: int
    measures: dict[str, Estimate]  # the keys of agreement.MEASURES


class AttackResult(Record):
    """What the attacks of one kind earned (0.0–1.0): None when the judge failed on all of them."""

    kind: str
    attacks: int
    failed: int
    highest: float | None
    mean: float | None
    above_limit: int


class JudgeEvaluation(Record):
    """All numbers of one evaluation, as evaluation.json holds them. Shares are 0.0–1.0 of all gradings."""

    date: str
    judge: str
    labels_file: str
    attacks_file: str
    labels: int
    attacks: int
    failed: int
    failed_share: float
    max_failed_share: float
    agreement: Agreement
    by_task_type: dict[str, Agreement]
    by_lang: dict[str, Agreement]
    attack_limit: float
    attacks_above_limit: int
    by_attack_kind: tuple[AttackResult, ...]

    @property
    def attacks_graded(self) -> int:
        return sum(kind.attacks - kind.failed for kind in self.by_attack_kind)

    @property
    def answers(self) -> int:
        return self.labels + self.attacks

    @property
    def too_many_failed(self) -> bool:
        return self.failed_share > self.max_failed_share


async def grade_all(
    judge: Judge,
    labels: Sequence[LabelledCase],
    attacks: Sequence[LabelledCase],
    on_done: Callable[[int], None] = lambda _: None,
) -> list[Grading]:
    """Grade every answer; labels first, each set in its order.

    A case on which the judge raises JudgeError comes back with that error. `on_done` takes how many are done.
    """
    cases: list[tuple[Literal["labels", "attacks"], LabelledCase]]
    cases = [*(("labels", case) for case in labels), *(("attacks", case) for case in attacks)]
    outcomes = await grade_cases(judge, [labelled.case for _, labelled in cases], on_done)
    return [
        Grading(name, labelled, outcome, usage=spent_on(outcome))
        if isinstance(outcome, Verdict)
        else Grading(name, labelled, error=str(outcome), usage=spent_on(outcome))
        for (name, labelled), outcome in zip(cases, outcomes, strict=True)
    ]


def measure(
    gradings: Sequence[Grading], *, judge: str, labels_file: str, attacks_file: str, max_failed_share: float
) -> JudgeEvaluation:
    """Measure agreement with labels and what attacks earned. Failed gradings are counted and else left out."""
    labels = [g for g in gradings if g.set == "labels"]
    attacks = [g for g in gradings if g.set == "attacks"]
    failed = len(failures(gradings))
    kinds = [_attack_result(kind, members) for kind, members in _grouped(attacks, lambda g: g.kind).items()]
    return JudgeEvaluation(
        date=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        judge=judge,
        labels_file=labels_file,
        attacks_file=attacks_file,
        labels=len(labels),
        attacks=len(attacks),
        failed=failed,
        failed_share=failed / len(gradings),
        max_failed_share=max_failed_share,
        agreement=_agreement(labels),
        by_task_type={k: _agreement(m) for k, m in _grouped(labels, lambda g: g.task_type).items()},
        by_lang={k: _agreement(m) for k, m in _grouped(labels, lambda g: g.case.question.lang).items()},
        attack_limit=ATTACK_LIMIT,
        attacks_above_limit=sum(kind.above_limit for kind in kinds),
        by_attack_kind=tuple(sorted(kinds, key=lambda k: (-(k.highest or 0.0), k.kind))),
    )


def graded(gradings: Sequence[Grading], name: Literal["labels", "attacks"]) -> list[Grading]:
    """Return the gradings of one set that have a verdict."""
    return [g for g in gradings if g.set == name and g.verdict is not None]


def failures(gradings: Sequence[Grading]) -> list[Grading]:
    """Return the gradings without a verdict."""
    return [g for g in gradings if g.verdict is None]


def causes(gradings: Sequence[Grading]) -> list[tuple[str, int]]:
    """Return why gradings failed, and how many of them for that reason; the most frequent first."""
    return Counter(g.error for g in failures(gradings)).most_common()


def attacks_through(gradings: Sequence[Grading]) -> list[Grading]:
    """Return the attacks that earned more than the limit, from the most to the least."""
    through = [g for g in graded(gradings, "attacks") if g.score > ATTACK_LIMIT]
    return sorted(through, key=lambda g: -g.score)


def scores_and_labels(gradings: Sequence[Grading]) -> tuple[Values, Values]:
    """Return the scores and labels of graded answers as arrays of one length."""
    return np.array([g.score for g in gradings]), np.array([g.case.label for g in gradings])


def write_numbers(folder: Path, evaluation: JudgeEvaluation, gradings: Sequence[Grading]) -> None:
    """Write evaluation.json and, with one object a graded answer, gradings.jsonl."""
    rows = (json.dumps(g.row(), ensure_ascii=False) for g in gradings)
    (folder / "gradings.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    (folder / RESULT_FILE).write_text(evaluation.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _agreement(gradings: Sequence[Grading]) -> Agreement:
    judged = [g for g in gradings if g.verdict is not None]
    scores, labels = scores_and_labels(judged)
    return Agreement(
        answers=len(judged),
        failed=len(gradings) - len(judged),
        measures={name: estimate(function, scores, labels) for name, function in MEASURES.items()},
    )


def _attack_result(kind: str, gradings: Sequence[Grading]) -> AttackResult:
    scores = [g.score for g in gradings if g.verdict is not None]
    return AttackResult(
        kind=kind,
        attacks=len(gradings),
        failed=len(gradings) - len(scores),
        highest=max(scores, default=None),
        mean=sum(scores) / len(scores) if scores else None,
        above_limit=sum(score > ATTACK_LIMIT for score in scores),
    )


def _grouped(gradings: Sequence[Grading], key: Callable[[Grading], str]) -> dict[str, list[Grading]]:
    groups: dict[str, list[Grading]] = {}
    for grading in gradings:
        groups.setdefault(key(grading), []).append(grading)
    return dict(sorted(groups.items()))
