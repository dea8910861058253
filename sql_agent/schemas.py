"""Define the records that the packages exchange: a question, a query and its answer, a finished rollout."""

from __future__ import annotations

import sqlite3
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Lang = Literal["zh", "en"]
Style = Literal["template", "natural", "mixed"]  # of made questions: formal, as people ask, or a third and two thirds
Cell = str | int | float | None


class Record(BaseModel):
    """Base of all records: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def facts_of(answer: str) -> list[str]:
    """Return the facts of a reference answer as they are written: the texts between its semicolons."""
    return [fact.strip() for fact in answer.replace("；", ";").split(";") if fact.strip()]


class Evidence(Record):
    """One place in the database that supports an answer; `quote` is a substring of the field."""

    table: str
    row_id: int
    field: str
    quote: str


class Question(Record):
    """One question with its reference answer.

    `answer` contains only the reference facts, separated by "; " (English) or "；" (Chinese): a judge splits it into
    facts. `task_type` groups results in tables, None: no group; "unanswerable" means that the database
    does not contain the answer. `sql` is one statement or several with ";" between them, to be run in this order.
    `enough` says how many of the facts make a full answer ("name any three …"); None: all.
    `database` names the one of the task's databases that the question is about; None is the run's own.
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
        """The facts that make a full answer: the first `enough` of them, or the reference as it is."""
        if self.enough is None:
            return self.answer
        return ("；" if self.lang == "zh" else "; ").join(facts_of(self.answer)[: self.enough])

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements of `sql` in order; a semicolon inside a text or a comment ends none."""
        found, start, text = [], 0, (self.sql or "").replace("\0", " ")  # which SQLite's function does not take
        for position, character in enumerate(text):
            if character == ";" and sqlite3.complete_statement(text[start : position + 1]):
                found.append(text[start:position])
                start = position + 1
        return tuple(statement.strip() for statement in (*found, text[start:]) if statement.strip())


class QueryLimits(Record):
    """Caps on one query: seconds it may run, records returned, and characters of the answer's JSON without its hint."""

    deadline_s: float = Field(default=2.0, gt=0)
    max_rows: int = Field(default=50, ge=1)
    max_chars: int = Field(default=4000, ge=200)


class QueryFailure(Record):
    """Why a statement gave no rows: a stable kind, a message, and a hint that the model can act on."""

    kind: str
    message: str
    hint: str | None = None


class QueryAnswer(Record):
    """What `query_database_by_sql` tells the model. Either `error` is set, or the other fields contain the rows.

    `count` is the number of records returned, `truncated` says that a cap on rows or characters cut them, `hint` what
    would help where nothing was found, and `from_tables` (never shown to the model) that at least one returned column
    comes from a table of the schema.
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
    """One call of the tool: the statement as the model wrote it, its answer, and how long it took in seconds."""

    sql: str
    answer: QueryAnswer
    seconds: float = Field(ge=0)


class Usage(Record):
    """What a model was used for: requests, tokens, verdicts taken from the cache, US dollars where a price is known."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_hits: int = 0
    cost_usd: float | None = None

    @property
    def described(self) -> str:
        """Requests, prompt and completion tokens, and the price where it is known, for people."""
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
    """How a rollout's reward came about. `total` = `rule` + `judge`, in 0.0–1.1."""

    rule: float = Field(ge=0.0, le=0.1)
    judge: float = Field(ge=0.0, le=1.0)
    judge_name: str
    criteria: dict[str, float] = Field(default_factory=dict)
    reason: str = ""

    @property
    def total(self) -> float:
        return self.rule + self.judge

    @property
    def of_the_answer(self) -> float:
        """The judge's score of the answer by itself, before a ranking within its group."""
        return self.criteria.get("absolute", self.judge)


class _WithMessage(StrEnum):
    """Base of enums whose members are written as `value, message`: the message is for people."""

    message: str

    def __new__(cls, value: str, message: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.message = message
        return member


class Outcome(_WithMessage):
    """How a run of the agent ended. All but ANSWERED are failures of the model itself, which are scored."""

    ANSWERED = "answered", "answered"
    UNKNOWN_TOOL = "unknown_tool", "called a tool that does not exist"
    MALFORMED_CALL = "malformed_call", "wrote a tool call that cannot be read"
    NO_OUTPUT = "no_output", "replied without any text"
    TOO_MANY_TURNS = "too_many_turns", "was still calling the tool when its turns were used up"
    CONTEXT_OVERFLOW = "context_overflow", "filled the model's context"


class DropCause(_WithMessage):
    """Which part lost a rollout, or made it useless for training."""

    JUDGE = "judge", "the judge gave no score"
    MODEL_SERVER = "model_server", "the model's server failed"
    DATABASE = "database", "the database could not be queried"
    PROCESS = "process", "the process that ran it died"
    ATTEMPT = "attempt", "the attempt did not succeed"
    STORE = "store", "the store could not be read"
    PROMPT = "prompt", "the question does not fit into the model's context"
    SPANS = "spans", "spans never reached the store"
    TRIPLETS = "triplets", "the triplets do not match the turns"
    RECORD = "record", "the rollout has no record or no reward"


class Drop(Record):
    """Why a rollout is left out of training. It is no score of 0: the rollout is counted and run again."""

    cause: DropCause
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.cause.message}: {self.detail}" if self.detail else self.cause.message


class ToolCall(Record):
    """A call of a tool as the model wrote it: `arguments` is its text, which need not be JSON."""

    name: str
    arguments: str


class Reply(Record):
    """One reply of the model, as its server returned it. `role` is the one it played, "" in a workflow with one role.

    `prompt_tokens` and `completion_tokens` are 0 where the server does not count them. `seconds` is the time from the
    request to the reply. `finish_reason` is the server's word for why the model stopped, such as "length".
    """

    role: str = ""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None
    seconds: float = Field(default=0.0, ge=0)


class RolloutRecord(Record):
    """One finished run of the agent on one question: everything a person needs to see what happened.

    `replies` are the model's in order. `seconds` is the agent's own time, `evidence_read` the part of the question's
    evidence that its queries read (None where the question has none). With `dropped` the `reward` is None. `usage` is
    what the agent's model read and wrote, no tokens where its server does not count them; `judge_usage` what grading
    cost, whether it led to a reward or not.
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
