"""Define the records that packages exchange: questions, queries and their results, finished rollouts."""

from __future__ import annotations

import sqlite3
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Lang = Literal["zh", "en"]
Style = Literal["template", "mixed"]  # template: fixed sentences; mixed: also everyday wordings
Cell = str | int | float | None

TOOL_NAME = "query_database_by_sql"  # the agent's only tool


class Record(BaseModel):
    """Base of all records: immutable, and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def facts_of(answer: str) -> list[str]:
    """Return the facts of a reference answer: "a; b" has the facts "a" and "b"."""
    return [fact.strip() for fact in answer.replace("；", ";").split(";") if fact.strip()]


class Evidence(Record):
    """A cell that supports an answer; `quote` is a substring of the cell."""

    table: str
    row_id: int
    field: str
    quote: str


class Question(Record):
    """A question with its reference answer.

    `answer` has the reference facts, separated by "; " (English) or "；" (Chinese). `task_type` is the question type in
    tables of results (None: no type); "unanswerable" means that the database does not contain the answer. `sql` is one
    gold statement, or several separated by ";". `enough` is how many of the facts make a full answer ("name any three
    …"; None: all). `database` names one of the task's databases (None: the run's own).
    """

    id: str
    question: str
    answer: str
    lang: Lang = "en"
    sql: str | None = None
    evidence: tuple[Evidence, ...] = ()
    task_type: str | None = None
    enough: int | None = Field(default=None, ge=1)
    database: str | None = None

    @field_validator("enough")
    @classmethod
    def _no_more_than_the_facts(cls, enough: int | None, info: ValidationInfo) -> int | None:
        facts = facts_of(info.data.get("answer", ""))
        if enough is not None and enough > len(facts):
            raise ValueError(f"{enough} is more than the {len(facts)} facts of the answer")
        return enough

    @property
    def full_answer(self) -> str:
        """The first `enough` facts of the reference; the whole reference if `enough` is None."""
        if self.enough is None:
            return self.answer
        return ("；" if self.lang == "zh" else "; ").join(facts_of(self.answer)[: self.enough])

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements of `sql`; a semicolon inside a string or a comment does not end a statement."""
        found, start, text = [], 0, (self.sql or "").replace("\0", " ")  # complete_statement refuses NUL
        for position, character in enumerate(text):
            if character == ";" and sqlite3.complete_statement(text[start : position + 1]):
                found.append(text[start:position])
                start = position + 1
        return tuple(statement.strip() for statement in (*found, text[start:]) if statement.strip())


class QueryLimits(Record):
    """Limits of a query: seconds, rows of its result, and characters of the result as JSON, without the hint."""

    deadline_s: float = Field(default=2.0, gt=0)
    max_rows: int = Field(default=50, ge=1)
    max_chars: int = Field(default=4000, ge=200)


class QueryFailure(Record):
    """Why a statement failed: a `kind` for programs to compare, a message, and a hint for the model."""

    kind: str
    message: str
    hint: str | None = None


class QueryAnswer(Record):
    """The result of one call of the tool `query_database_by_sql`: an `error`, or the rows in `records`.

    `count` is the number of returned rows. `truncated` is true if a limit of rows or characters cut rows off. `hint` is
    advice for the model. `from_tables` is true if any column comes from a table; the model does not see this field.
    """

    status: Literal["ok", "error"]
    columns: tuple[str, ...] = ()
    records: tuple[tuple[Cell, ...], ...] = ()
    count: int = 0
    truncated: bool = False
    hint: str | None = None
    error: QueryFailure | None = None
    from_tables: bool = False


class QueryCall(Record):
    """One call of the tool: the statement as the model wrote it, its result, and its duration in seconds."""

    sql: str
    answer: QueryAnswer
    seconds: float = Field(ge=0)


class Usage(Record):
    """The cost of requests to a model. `cache_hits` counts cached verdicts. `cost_usd` is None if unknown."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_hits: int = 0
    cost_usd: float | None = None

    @property
    def described(self) -> str:
        price = "" if self.cost_usd is None else f", {self.cost_usd:.2f} US dollars"
        return f"{self.requests} requests, {self.prompt_tokens} + {self.completion_tokens} tokens{price}"

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cache_hits=self.cache_hits + other.cache_hits,
            cost_usd=sum(costs) if costs else None,
        )


class RewardParts(Record):
    """The parts of a reward: `total` = `rule` + `judge`, at most 1.1, and negative only with `spider.penalty`."""

    rule: float = Field(ge=0.0, le=0.1)
    judge: float = Field(ge=-1.0, le=1.0)
    judge_name: str
    criteria: dict[str, float] = Field(default_factory=dict)
    reason: str = ""

    @property
    def total(self) -> float:
        return self.rule + self.judge

    @property
    def of_the_answer(self) -> float:
        """The judge's score of this answer alone (0–1), not its score from a ranking of the group."""
        return self.criteria.get("absolute", self.judge)


class _WithMessage(StrEnum):
    """Base of enums whose members have a value and a message for people."""

    message: str

    def __new__(cls, value: str, message: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.message = message
        return member


class Outcome(_WithMessage):
    """How a rollout ended. All but ANSWERED are failures of the model, and are graded, not dropped."""

    ANSWERED = "answered", "answered"
    UNKNOWN_TOOL = "unknown_tool", "called a tool that does not exist"
    MALFORMED_CALL = "malformed_call", "wrote a tool call that cannot be read"
    NO_OUTPUT = "no_output", "replied without any text"
    TOO_MANY_TURNS = "too_many_turns", "was still calling the tool when its turns were used up"
    CONTEXT_OVERFLOW = "context_overflow", "filled the model's context"


class DropCause(_WithMessage):
    JUDGE = "judge", "the judge gave no score"
    MODEL_SERVER = "model_server", "the model's server failed"
    DATABASE = "database", "the database could not be queried"
    PROCESS = "process", "the process that ran the rollout died"
    ATTEMPT = "attempt", "the attempt did not succeed"
    STORE = "store", "the store could not be read"
    PROMPT = "prompt", "the question does not fit into the model's context"
    SPANS = "spans", "spans never reached the store"
    TRIPLETS = "triplets", "the triplets do not match the turns"
    RECORD = "record", "the rollout has no record or no reward"


class Drop(Record):
    """Why a rollout is not trained on. A dropped rollout is counted and run again, not scored 0."""

    cause: DropCause
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause.message}: {self.detail}" if self.detail else self.cause.message


class ToolCall(Record):
    """A tool call as the model wrote it. `arguments` is text, which may be malformed JSON."""

    name: str
    arguments: str


class Reply(Record):
    """A reply of the model, as its server returned it; `role` is "" in a workflow with one role.

    `reasoning` is the thought before the answer, `thought_tokens` its length. Token counts are 0 if the server does not
    report them. `seconds` is the time from request to reply. `finish_reason` is why the model stopped, such as
    "length".
    """

    role: str = ""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    thought_tokens: int = 0
    finish_reason: str | None = None
    seconds: float = Field(default=0.0, ge=0)


class RolloutRecord(Record):
    """A finished run of the agent on one question.

    `evidence_read` is the part of the question's evidence that the queries read (None: the question has no evidence).
    `reward` is None if `dropped` is set. `usage` is the cost of the agent's model, `judge_usage` the cost of grading,
    even if the grading failed. `seconds` is the duration without grading.
    """

    question: Question
    answer: str
    outcome: Outcome
    calls: tuple[QueryCall, ...] = ()
    replies: tuple[Reply, ...] = ()
    turns: int = 0
    evidence_read: tuple[Evidence, ...] | None = None
    reward: RewardParts | None = None
    dropped: Drop | None = None
    usage: Usage = Usage()
    judge_usage: Usage = Usage()
    seconds: float = 0.0
