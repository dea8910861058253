"""Read labelled answers, and generate others, to measure a judge on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from sql_agent.errors import DataError
from sql_agent.judge_eval.adversarial_answers import FALSE
from sql_agent.judge_eval.equivalent_answers import HARMLESS, Subject, parts_of
from sql_agent.reward import JudgeCase
from sql_agent.schemas import Evidence, Lang, QueryCall, Question, Record
from sql_agent.system.messages import first_problem

# Labelled by people: labels, attacks. Generated: harmless (right, in another form), false, policy (degenerate).
AnswerSet = Literal["labels", "attacks", "harmless", "false", "policy"]


@dataclass(frozen=True)
class Answer:
    """An answer to be graded, with the score `due` to it (0.0–1.0).

    `kind` is the transformation or policy that made the answer, or the kind of a labelled answer.
    """

    set: AnswerSet
    kind: str
    due: float
    case: JudgeCase


class LabelledCase(Record):
    """An answer as a judge sees it, and a person's score of the answer: `label` (0.0–1.0), with the `reason`.

    `kind` is the group of the answer, such as "partial" or, among the attacks, "keyword_salad".
    """

    question: Question
    answer: str
    calls: tuple[QueryCall, ...] = ()
    label: Annotated[float, Field(ge=0.0, le=1.0)]
    kind: str = ""
    reason: str = ""

    def of_set(self, name: Literal["labels", "attacks"]) -> Answer:
        return Answer(name, self.kind or "other", self.label, self.case)

    @property
    def case(self) -> JudgeCase:
        return JudgeCase(question=self.question, answer=self.answer, calls=self.calls)


def shipped(name: str) -> list[LabelledCase]:
    """Return the shipped labelled answers, "labels" or "attacks", about the sample database in both languages.

    They are for judges that read prose. A judge that was tuned on them must be measured on other answers.
    """
    text = files("sql_agent.judge_eval").joinpath("labelled", f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse(text, name)


def load_labelled(path: Path) -> list[LabelledCase]:
    """Read labelled answers from a JSONL file. Raises DataError that names the wrong line."""
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", hint="give --labels a JSONL file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}", hint="save the file as UTF-8") from None


def _parse(text: str, source: str) -> list[LabelledCase]:
    cases = []
    # Split at "\n" only, because texts may contain the other characters that splitlines() splits at.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            cases.append(LabelledCase.model_validate_json(line))
        except ValidationError as error:
            raise DataError(
                f"{source}, line {number}: {first_problem(error)}",
                hint="see LabelledCase in sql_agent/judge_eval/answers.py",
            ) from None
    if not cases:
        raise DataError(f"{source} has no labelled answer")
    return cases


T = TypeVar("T")
_CANDIDATES = 50  # maximum number of examples that are tried until one shares no part of the answer


@dataclass(frozen=True)
class Reading:
    """Queries, and the part of a question's evidence that the queries read."""

    calls: tuple[QueryCall, ...] = ()
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Example:
    """A question, and queries for the question with their results.

    `gold` is the gold SQL, `rows` the gold SQL with every column, `tables` reads the tables of the gold SQL wholly.
    `by_heart` are queries, keyed by kind, that do not read the evidence, but contain its text or test its cells.
    `row_names` has a tuple for each item of the evidence, with all names of the item's row.
    """

    question: Question
    gold: Reading
    rows: Reading
    tables: Reading
    by_heart: Mapping[str, Reading] = field(default_factory=dict)
    row_names: tuple[tuple[str, ...], ...] = ()

    def case(self, answer: str, reading: Reading) -> JudgeCase:
        """Return the case of a rollout that queried as in `reading` and gave `answer`."""
        return JudgeCase(
            question=self.question,
            answer=answer,
            calls=reading.calls,
            evidence_read=reading.evidence,
            row_names=self.row_names,
        )


def refusals(questions: Iterable[Question]) -> Mapping[Lang, str]:
    """Return the reference answer of the unanswerable questions in each language that has such questions."""
    return {question.lang: question.answer for question in questions if question.task_type == "unanswerable"}


def sample_evenly(questions: Sequence[tuple[Question, T]], number: int) -> list[tuple[Question, T]]:
    """Return `number` of `questions`, spread evenly over languages and task types; the same sample in each call."""
    groups: dict[tuple[str, str | None], list[tuple[Question, T]]] = {}
    for pair in questions:
        groups.setdefault((pair[0].lang, pair[0].task_type), []).append(pair)
    rounds = zip_longest(*(Random(0).sample(group, len(group)) for group in groups.values()))
    return [pair for one_of_each in rounds for pair in one_of_each if pair is not None][:number]


def generate(examples: Sequence[Example], refusal_of: Mapping[Lang, str]) -> list[Answer]:
    """Return the answers that every transformation and policy makes from `examples`; the same in each call.

    `refusal_of` is the refusal sentence by language; answers that need a missing sentence are left out. A false answer
    is graded as if the rollout had also queried for the question from which the answer borrows.
    """
    answers: list[Answer] = []
    for example, other in zip(examples, _others(examples), strict=True):
        question, refusal = example.question, refusal_of.get(example.question.lang)
        names = frozenset(name for of_row in example.row_names for name in of_row)
        subject = Subject(question, None if other is None else other.question, refusal, names)
        both = Reading(example.gold.calls + (other.gold.calls if other else ()), example.gold.evidence)
        for transformation in (*HARMLESS, *FALSE):
            kind = transformation.__name__
            answer = transformation(subject, Random(f"{kind} {question.id}"))
            if answer is not None:
                answers.append(
                    Answer("harmless", kind, 1.0, example.case(answer, example.gold))
                    if transformation in HARMLESS
                    else Answer("false", kind, 0.0, example.case(answer, both))
                )
        for kind, reading in example.by_heart.items():
            answers.append(Answer("false", kind, 0.0, example.case(question.full_answer, reading)))
        for policy in POLICIES:
            if (given := policy(example, refusal)) is not None:
                answer, reading = given
                right = bool(reading.calls) and _is_right(answer, question)
                answers.append(Answer("policy", policy.__name__, float(right), example.case(answer, reading)))
    return answers


def _is_right(answer: str, question: Question) -> bool:
    """Return whether `answer` has the parts of the reference: `enough` of them, or all if `enough` is None."""
    parts, reference = parts_of(answer), parts_of(question.answer)
    return parts == reference if question.enough is None else parts <= reference and len(parts) == question.enough


def _others(examples: Sequence[Example]) -> Iterator[Example | None]:
    """Yield for each example another whose answer shares no part, of the same task type if possible; else None."""
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
        candidates = [*rng.sample(alike, min(_CANDIDATES, len(alike))), *pools.get((question.lang, "any"), [])]
        yield next((other for other in candidates if not parts & parts_of(other.question.answer)), None)


# Degenerate policies do not understand the question, and must not be worth learning. A policy takes a question and the
# refusal sentence of the question's language (None: no sentence). It returns an answer and the queries before it.


def always_refuse(example: Example, refusal: str | None) -> tuple[str, Reading] | None:
    return None if refusal is None else (refusal, example.gold)


def refuse_without_a_query(_example: Example, refusal: str | None) -> tuple[str, Reading] | None:
    return None if refusal is None else (refusal, Reading())


def echo(example: Example, _refusal: str | None) -> tuple[str, Reading]:
    return example.question.question, example.gold


def dump_the_tables(example: Example, _refusal: str | None) -> tuple[str, Reading]:
    return "; ".join(_cells(example.tables)), example.tables


def dump_the_rows(example: Example, _refusal: str | None) -> tuple[str, Reading]:
    return "; ".join(_cells(example.rows)), example.rows


def longest_cell(example: Example, _refusal: str | None) -> tuple[str, Reading]:
    return max(_cells(example.rows), key=len, default=""), example.rows


def always_no(example: Example, _refusal: str | None) -> tuple[str, Reading]:
    return "否" if example.question.lang == "zh" else "no", example.rows


def number_of_rows(example: Example, _refusal: str | None) -> tuple[str, Reading]:
    return str(sum(call.answer.count for call in example.rows.calls)), example.rows


POLICIES: tuple[Callable[[Example, str | None], tuple[str, Reading] | None], ...] = (
    always_refuse, refuse_without_a_query, echo, dump_the_tables, dump_the_rows, longest_cell,
    always_no, number_of_rows,
)  # fmt: skip


def _cells(reading: Reading) -> list[str]:
    return [str(cell) for call in reading.calls for row in call.answer.records for cell in row if cell is not None]
