"""What travels between the parts: a question, a query and its answer, and a finished rollout."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Lang = Literal["zh", "en"]
TaskType = Literal[
    "drug_field",
    "disease_field",
    "comparison",
    "keyword_search",
    "aggregate",
    "disease_to_drugs",
    "unanswerable",
]
Cell = str | int | float | None


class Record(BaseModel):
    """Base of all records: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(Record):
    """One place in the database that supports an answer; `quote` is a substring of the field."""

    table: str
    row_id: int
    field: str
    quote: str


class Question(Record):
    """One question with its reference answer.

    `answer` holds the reference facts only, separated by "; " (English) or "；" (Chinese): a judge splits it into
    facts. `task_type` is None for data that a user brought without one.
    """

    id: str
    question: str
    answer: str
    lang: Lang = "en"
    sql: str | None = None
    evidence: tuple[Evidence, ...] = ()
    task_type: TaskType | None = None


class QueryFailure(Record):
    """Why a statement gave no rows: a stable kind, a message, and a hint that the model can act on."""

    kind: str
    message: str
    hint: str | None = None


class QueryAnswer(Record):
    """What `query_database_by_sql` tells the model. Either `error` is set or the other fields hold the rows.

    `count` is the number of records returned, `truncated` says that a cap on rows or characters cut them, and
    `medical` (never shown to the model) that at least one returned column comes from a medical table.
    """

    status: Literal["ok", "error"]
    columns: tuple[str, ...] = ()
    records: tuple[tuple[Cell, ...], ...] = ()
    count: int = 0
    truncated: bool = False
    error: QueryFailure | None = None
    medical: bool = False


class QueryCall(Record):
    """One call of the tool: the statement as the model wrote it, its answer, and how long it took in seconds."""

    sql: str
    answer: QueryAnswer
    seconds: float = Field(ge=0)


class Usage(Record):
    """What grading cost: requests sent, tokens, verdicts taken from the cache, US dollars where a price is known."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_hits: int = 0
    cost_usd: float | None = None

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
        """The judge's score of the answer by itself: before a rescaling, and before a ranking within its group."""
        return self.criteria.get("absolute", self.criteria.get("unscaled", self.judge))


class RolloutRecord(Record):
    """One finished run of the agent on one question: everything a person needs to see what happened.

    `outcome` is "answered", or the reason code of a failure that is the model's own ("unknown_tool",
    "malformed_call", "no_output", "too_many_turns", "context_overflow"); these are scored. `dropped` is the reason why
    the rollout was left out of training (a judge or the infrastructure failed); then `reward` is None. `judge_usage`
    is what grading cost, whether it led to a reward or not.
    """

    question: Question
    answer: str
    outcome: str
    calls: tuple[QueryCall, ...] = ()
    turns: int = 0
    reward: RewardParts | None = None
    dropped: str | None = None
    judge_usage: Usage = Usage()
    seconds: float = 0.0
    extra: dict[str, Any] = Field(default_factory=dict)
