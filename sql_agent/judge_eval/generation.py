"""Generate answers to questions: right ones in other forms, false ones, and those of degenerate policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from sql_agent.judge_eval.examples import Example, Reading
from sql_agent.judge_eval.policies import POLICIES
from sql_agent.judge_eval.transformations.falsifying import FALSE
from sql_agent.judge_eval.transformations.harmless import HARMLESS
from sql_agent.judge_eval.transformations.subject import Subject, Transformation, parts_of
from sql_agent.reward.judges.base import JudgeCase
from sql_agent.schemas import Lang, Question

Kind = Literal["harmless", "false", "policy"]
_TRIES = 50  # questions looked at for one to borrow from


@dataclass(frozen=True)
class Generated:
    """One generated answer: by what, the score that it should earn (0.0–1.0), and the case of the judge."""

    kind: Kind
    name: str
    due: float
    case: JudgeCase


def generate(examples: Sequence[Example], refusal_of: Mapping[Lang, str]) -> list[Generated]:
    """Make the answers of every transformation and policy; the same for the same examples.

    `refusal_of` is the refusal sentence by language: without one, nothing is made that needs it. A false answer is
    graded as if the rollout had also read the question from which it borrows.
    """
    answers: list[Generated] = []
    for example, other in zip(examples, _others(examples), strict=True):
        refusal = refusal_of.get(example.question.lang)
        subject = Subject(example.question, None if other is None else other.question, refusal)
        both = Reading(example.gold.calls + (other.gold.calls if other else ()), example.gold.evidence)
        for name, answer in _transformed(subject, HARMLESS):
            answers.append(Generated("harmless", name, 1.0, example.case(answer, example.gold)))
        for name, answer in _transformed(subject, FALSE):
            answers.append(Generated("false", name, 0.0, example.case(answer, both)))
        answers += _of_policies(example, refusal)
    return answers


def _transformed(subject: Subject, transformations: Iterable[Transformation]) -> Iterator[tuple[str, str]]:
    """Yield name and answer of each transformation that applies."""
    for transformation in transformations:
        name = transformation.__name__
        answer = transformation(subject, Random(f"{name} {subject.question.id}"))
        if answer is not None:
            yield name, answer


def _of_policies(example: Example, refusal: str | None) -> Iterator[Generated]:
    for policy in POLICIES:
        given = policy(example, refusal)
        if given is not None:
            answer, reading = given
            right = bool(reading.calls) and _is_right(answer, example.question)
            yield Generated("policy", policy.__name__, float(right), example.case(answer, reading))


def _is_right(answer: str, question: Question) -> bool:
    """Return whether `answer` has the same parts as the reference, or as many of them as are enough."""
    parts, reference = parts_of(answer), parts_of(question.answer)
    return parts == reference if question.enough is None else parts <= reference and len(parts) == question.enough


def _others(examples: Sequence[Example]) -> Iterator[Example | None]:
    """For each example, yield another that shares no part of the answer, of the same task type if there is one."""
    pools: dict[tuple[Lang, str | None], list[Example]] = {}
    for example in examples:
        question = example.question
        pools.setdefault((question.lang, question.task_type), []).append(example)
        if question.task_type != "unanswerable":
            pools.setdefault((question.lang, "any"), []).append(example)
    for example in examples:
        question = example.question
        rng = Random(question.id)
        parts = parts_of(question.answer)
        alike = pools[question.lang, question.task_type]
        candidates = [*rng.sample(alike, min(_TRIES, len(alike))), *pools.get((question.lang, "any"), [])]
        yield next((other for other in candidates if not parts & parts_of(other.question.answer)), None)
