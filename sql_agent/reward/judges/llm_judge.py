"""Grade answers with a language model, which gives a reason and a level for each criterion of a rubric."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator

from sql_agent.errors import ConfigError
from sql_agent.reward import JudgeCase, Verdict
from sql_agent.reward.judges.client import JudgeClient
from sql_agent.reward.judges.prompt_parts import json_string, plain_text, quotes_of, reference_text, render, rows_text
from sql_agent.schemas import Lang, Question, Record
from sql_agent.system.files import prompt_file, read_toml
from sql_agent.system.messages import first_problem

REFUSALS = ("The database does not hold this information.", "数据库中没有这一信息。")

_VERSION = 4  # raise it when a prompt, the repair text, the shown rows or the parsing of replies changes
_MAX_ROWS_CHARS = 4000
_REPAIR = "That was not one JSON object of the asked form. Reply with that object only, one level name per criterion."
# Additional keys in a reply are ignored. The schema in the request forbids them, as OpenAI's strict mode requires.
LENIENT = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})


class Level(Record):
    """A level of a criterion: its name, its value, and its description in English and Chinese."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")]
    value: float = Field(ge=-1.0, le=1.0)
    en: str
    zh: str


class Criterion(Record):
    """A criterion of a rubric. With `cap`, the score of an answer is at most the value of this criterion."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")]
    weight: float = Field(gt=0.0)
    cap: bool = False
    en: str
    zh: str
    levels: Annotated[tuple[Level, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _levels_differ(self) -> Self:
        if len({level.name for level in self.levels}) < len(self.levels):
            raise ValueError(f"criterion {self.name!r} has two levels of one name")
        return self

    @property
    def only_takes_away(self) -> bool:
        return max(level.value for level in self.levels) <= 0.0

    def value(self, level: str) -> float:
        return next(candidate.value for candidate in self.levels if candidate.name == level)


class Rubric(Record):
    """The criteria by which a model grades an answer."""

    criterion: Annotated[tuple[Criterion, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _makes_a_score(self) -> Self:
        if len({c.name for c in self.criterion}) < len(self.criterion):
            raise ValueError("two criteria have one name")
        if all(c.only_takes_away for c in self.criterion):
            raise ValueError("no criterion gives points")
        return self

    def score(self, levels: Mapping[str, str]) -> tuple[float, dict[str, float]]:
        """Return the score and the value of each criterion; `levels` has the name of a level for each criterion.

        The score is the sum of weight x value over all criteria, divided by the weights of the criteria that can give
        points. It is at most the value of each criterion with `cap`, and clipped to 0.0–1.0.
        """
        values = {c.name: c.value(levels[c.name]) for c in self.criterion}
        weights = sum(c.weight for c in self.criterion if not c.only_takes_away)
        score = sum(c.weight * values[c.name] for c in self.criterion) / weights
        bound = min([1.0, *(values[c.name] for c in self.criterion if c.cap)])
        return max(0.0, min(score, bound)), values

    def as_text(self, lang: Lang) -> str:
        lines = []
        for c in self.criterion:
            levels = "; ".join(f"{level.name} = {getattr(level, lang)}" for level in c.levels)
            lines.append(f"- {c.name}: {getattr(c, lang)} {levels}")
        return "\n".join(lines)

    @cached_property
    def reply_model(self) -> type[BaseModel]:
        """The pydantic model of a reply: for each criterion, an object {"reason": str, "level": the name of a level}.

        The name of a level may be in any case, with spaces around it.
        """
        fields: dict[str, Any] = {}
        for c in self.criterion:
            names: Any = Annotated[Literal[tuple(level.name for level in c.levels)], BeforeValidator(_level_name)]
            fields[c.name] = (create_model(c.name, __config__=LENIENT, reason=(str, ...), level=(names, ...)), ...)
        reply: type[BaseModel] = create_model("Grades", __config__=LENIENT, **fields)
        return reply

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class LlmJudge:
    """The judge "llm": a language model grades by `rubric`, and unanswerable questions by the rubric "refusal".

    A question is unanswerable if its task type says so, or if its reference is one of the sentences `refusals`, by
    default `REFUSALS`.
    """

    name = "llm"

    def __init__(self, client: JudgeClient, rubric: Rubric, refusals: Collection[str] = ()) -> None:
        self._client = client
        self._rubric = rubric
        self._refusal_rubric = shipped_rubric("refusal")
        self._refusals = frozenset(map(_bare, refusals or REFUSALS))
        self._refusals_digest = hashlib.sha256(json.dumps(sorted(self._refusals)).encode()).hexdigest()[:16]

    @property
    def identity(self) -> str:
        rubrics = f"{self._rubric.digest}:{self._refusal_rubric.digest}:{self._refusals_digest}"
        return f"llm/{_VERSION}:{self._client.identity}:{_MAX_ROWS_CHARS}:{rubrics}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError, with the last reply, if no reply is usable."""
        rubric = self.rubric_for(case.question)
        reply, usage = await self._client.ask(self.prompt(case), rubric.reply_model, repair=_REPAIR)
        grades: dict[str, dict[str, str]] = reply.model_dump()
        score, criteria = rubric.score({name: grade["level"] for name, grade in grades.items()})
        reason = "; ".join(f"{name}: {grade['reason']}" for name, grade in grades.items() if grade["reason"])
        return Verdict(score=score, criteria=criteria, reason=reason, usage=usage)

    def rubric_for(self, question: Question) -> Rubric:
        refused = question.task_type == "unanswerable" or _bare(question.answer) in self._refusals
        return self._refusal_rubric if refused else self._rubric

    def prompt(self, case: JudgeCase) -> str:
        """Return the prompt for `case`, with the answer without Markdown, so that headers and bullets earn nothing."""
        question, rubric = case.question, self.rubric_for(case.question)
        example = {c.name: {"reason": "…", "level": c.levels[0].name} for c in rubric.criterion}
        values = {
            "criteria": rubric.as_text(question.lang),
            "form": json.dumps(example, ensure_ascii=False),
            "question": json_string(question.question),
            "reference": reference_text(question),
            "rows": rows_text(case.calls, quotes_of(question), max_chars=_MAX_ROWS_CHARS),
            "answer": plain_text(case.answer),
        }
        return render(prompt_file(__file__, f"judge.{question.lang}.txt"), values)


def shipped_rubric(name: Literal["default", "refusal"]) -> Rubric:
    """Return the rubric "refusal" for unanswerable questions, or "default" for all others."""
    return load_rubric(Path(__file__).with_name("rubrics") / f"{name}.toml")


def load_rubric(path: Path | None) -> Rubric:
    """Return the rubric in a TOML file; None for the default rubric. Raises ConfigError if the file is invalid."""
    if path is None:
        return shipped_rubric("default")
    try:
        return Rubric.model_validate(read_toml(path, "check judge.rubric"))
    except ValidationError as error:
        raise ConfigError(
            f"the rubric {path}: {first_problem(error)}", hint="see sql_agent/reward/judges/rubrics/default.toml"
        ) from None


def _level_name(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def _bare(sentence: str) -> str:
    return sentence.strip().rstrip(".。").casefold()
