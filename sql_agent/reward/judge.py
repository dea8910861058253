"""What a judge is: it takes one case and gives a verdict, or raises JudgeError."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pydantic import Field

from sql_agent.errors import ConfigError
from sql_agent.records import QueryCall, Question, Record

JUDGE_NAMES = ("reference", "llm")


class JudgeCase(Record):
    """What a judge looks at: the question with its reference, the agent's final answer, and its queries in order."""

    question: Question
    answer: str
    calls: tuple[QueryCall, ...] = ()


class Verdict(Record):
    """A judge's score in 0.0–1.0, the criteria that led to it (each 0.0–1.0), and one sentence of why."""

    score: float = Field(ge=0.0, le=1.0)
    criteria: dict[str, float] = Field(default_factory=dict)
    reason: str = ""


@runtime_checkable
class Judge(Protocol):
    """Anything that grades cases. A judge of judges (a panel, a cache) has the same shape and wraps others."""

    @property
    def name(self) -> str:
        """What the verdicts of this judge are filed under."""
        ...

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case; raises JudgeError when no score can be given, which drops the rollout."""
        ...


def make_judge(
    name: str,
    *,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout_s: float = 60.0,
) -> Judge:
    """Build the judge called `name`: "reference" (offline) or "llm" (an OpenAI-compatible endpoint).

    The other arguments concern "llm" only: `model` is required; without `base_url` litellm picks the provider by
    the model's prefix; `timeout_s` bounds one whole grading, retries included, in seconds.
    Raises ConfigError on an unknown name or a missing or wrong setting.
    """
    # The judges import this module's types, and most runs need only one of them.
    if name == "reference":
        from sql_agent.reward.reference import ReferenceJudge  # noqa: PLC0415

        return ReferenceJudge()
    if name == "llm":
        from sql_agent.reward.llm import LlmJudge  # noqa: PLC0415

        if not model:
            raise ConfigError("the llm judge has no model", hint="set TEACHER_MODEL, or use the judge 'reference'")
        return LlmJudge(model, base_url=base_url, api_key=api_key, timeout_s=timeout_s)
    raise ConfigError(f"unknown judge {name!r}", hint=f"use one of: {', '.join(JUDGE_NAMES)}")
