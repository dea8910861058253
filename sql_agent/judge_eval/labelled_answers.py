"""Read answers with a person's label, to measure whether a judge can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from sql_agent.errors import DataError
from sql_agent.reward.judges.base import JudgeCase
from sql_agent.schemas import QueryCall, Question, Record
from sql_agent.system.messages import first_problem

# Labelled by people: labels, attacks. Generated: harmless (right, in another form), false, policy (degenerate).
AnswerSet = Literal["labels", "attacks", "harmless", "false", "policy"]


@dataclass(frozen=True)
class Answer:
    """An answer to be graded, with the score that is due to it (0.0–1.0).

    `kind` is the transformation or policy that made it, or the kind of a labelled answer.
    """

    set: AnswerSet
    kind: str
    due: float
    case: JudgeCase


class LabelledCase(Record):
    """One answer as a judge sees it, with the score that a person gave it (0.0–1.0) and why.

    `kind` groups answers of one sort, such as "partial" or, among the attacks, "keyword_salad".
    """

    question: Question
    answer: str
    calls: tuple[QueryCall, ...] = ()
    label: Annotated[float, Field(ge=0.0, le=1.0)]
    kind: str = ""
    reason: str = ""

    def of_set(self, name: Literal["labels", "attacks"]) -> Answer:
        """Return this as an answer of the set `name`."""
        return Answer(name, self.kind or "other", self.label, self.case)

    @property
    def case(self) -> JudgeCase:
        return JudgeCase(question=self.question, answer=self.answer, calls=self.calls)


def shipped(name: str) -> list[LabelledCase]:
    """Return our own set, "labels" or "attacks", made from the sample's facts in both languages.

    They are for judges that read prose. A judge that was tuned on them must be measured on others.
    """
    text = files("sql_agent.judge_eval").joinpath("labelled", f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse(text, name)


def load_labelled(path: Path) -> list[LabelledCase]:
    """Read a user's file, one JSON object a line. Raises DataError that names the line and its fault."""
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", hint="give --labels a JSONL file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}", hint="save it as UTF-8") from None


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
                hint="see LabelledCase in sql_agent/judge_eval/labelled_answers.py",
            ) from None
    if not cases:
        raise DataError(f"{source} has no labelled answer")
    return cases
