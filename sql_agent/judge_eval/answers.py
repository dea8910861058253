"""Read answers that people labelled, and generate answers from references, to measure a judge on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from sql_agent.system.files import filled_lines
from sql_agent.system.messages import first_problem

# People labelled the answers of "labels" and "attacks". The others are generated; "harmless" are right answers in
# another form.
AnswerSet = Literal["labels", "attacks", "harmless", "false", "policy"]


@dataclass(frozen=True)
class Answer:
    """An answer to grade, and the score that is `due` to the answer (0.0–1.0).

    `kind` is the transformation or policy that made the answer, or the kind of a labelled answer.
    """

    set: AnswerSet
    kind: str
    due: float
    case: JudgeCase


class LabelledCase(Record):
    """An answer as a judge sees it, and a person's score of the answer: `label` (0.0–1.0), with the `reason`.

    `kind` is the group of the answer, such as "partial", or "keyword_salad" for an attack.
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


def load_labelled(name: str) -> list[LabelledCase]:
    """Read labelled answers from a JSONL file, or the shipped answers "labels", "heldout" or "attacks".

    The shipped answers are about the sample database, in both languages, for judges that read prose. A judge that was
    tuned on them must be measured on other answers. Raises a DataError that names the wrong line.
    """
    shipped = name in {"labels", "heldout", "attacks"}
    path = Path(__file__).with_name("labelled") / f"{name}.jsonl" if shipped else Path(name)
    cases = []
    for number, line in filled_lines(path):
        try:
            cases.append(LabelledCase.model_validate_json(line))
        except ValidationError as error:
            raise DataError(
                f"{path}, line {number}: {first_problem(error)}",
                hint="see LabelledCase in sql_agent/judge_eval/answers.py",
            ) from None
    if not cases:
        raise DataError(f"{path} has no labelled answer")
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

    `gold` is the gold SQL, `rows` is the gold SQL with every column, and `tables` returns the whole tables of the gold
    SQL. `by_heart` has queries, keyed by kind, that only seem to read the evidence, such as `SELECT 'its text' FROM t`.
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
    """Return the reference answer of the unanswerable questions by language."""
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

    `refusal_of` has the refusal sentence by language; answers that need a missing sentence are left out. A false answer
    of a transformation may borrow facts of another question, so its case has the gold queries of both questions.
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
            if answer is not None and transformation in HARMLESS:
                answers.append(Answer("harmless", kind, 1.0, example.case(answer, example.gold)))
            elif answer is not None:
                answers.append(Answer("false", kind, 0.0, example.case(answer, both)))
        for kind, reading in example.by_heart.items():
            answers.append(Answer("false", kind, 0.0, example.case(question.full_answer, reading)))
        parts = parts_of(question.answer)
        for kind, policy in POLICIES.items():
            answer, reading = policy(example, refusal)
            if answer is not None:
                given = parts_of(answer)
                is_right = given <= parts and len(given) == (question.enough or len(parts))
                due = float(is_right and bool(reading.calls))
                answers.append(Answer("policy", kind, due, example.case(answer, reading)))
    return answers


def _others(examples: Sequence[Example]) -> Iterator[Example | None]:
    """Yield for each example another whose answer has no part in common (if possible of its task type), or None."""
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


def _cells(reading: Reading) -> list[str]:
    return [str(cell) for call in reading.calls for row in call.answer.records for cell in row if cell is not None]


# Degenerate policies do not understand the question, and must not be worth learning. A policy takes a question and the
# refusal sentence of its language, or None. It returns an answer, or None, and the queries before the answer.
POLICIES: Mapping[str, Callable[[Example, str | None], tuple[str | None, Reading]]] = {
    "always_refuse": lambda example, refusal: (refusal, example.gold),
    "refuse_without_a_query": lambda _, refusal: (refusal, Reading()),
    "echo": lambda example, _: (example.question.question, example.gold),
    "dump_the_tables": lambda example, _: ("; ".join(_cells(example.tables)), example.tables),
    "dump_the_rows": lambda example, _: ("; ".join(_cells(example.rows)), example.rows),
    "longest_cell": lambda example, _: (max(_cells(example.rows), key=len, default=""), example.rows),
    "always_no": lambda example, _: ("否" if example.question.lang == "zh" else "no", example.rows),
    "number_of_rows": lambda example, _: (str(sum(call.answer.count for call in example.rows.calls)), example.rows),
}
