"""Judge an answer with a language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from importlib.resources import files
from typing import Any

from openai import OpenAIError
from pydantic import BaseModel, Field, ValidationError
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from sql_agent.errors import JudgeError
from sql_agent.records import Lang
from sql_agent.reward.judge import JudgeCase, Verdict

_ATTEMPTS = 4
_MAX_TOKENS = 300
_MAX_ROWS_CHARS = 4000
_RETRIED_STATUS = {408, 409, 429, 500, 502, 503, 504}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_REPAIR = 'That was not one JSON object with "reason" and "score" (0.0 to 1.0). Reply with that object only.'


class Grade(BaseModel):
    """What the model must reply."""

    reason: str = ""
    score: float = Field(ge=0.0, le=1.0, strict=True)


class LlmJudge:
    """The judge "llm". Temperature 0; one whole grading, retries and repair included, ends within `timeout_s`.

    With `base_url` the endpoint is OpenAI-compatible; without, litellm picks the provider by the model's prefix.
    """

    name = "llm"

    def __init__(
        self, model: str, *, base_url: str | None = None, api_key: str | None = None, timeout_s: float = 60.0
    ) -> None:
        self._model = f"openai/{model}" if base_url else model
        self._base_url = base_url
        self._api_key = api_key or ("unused" if base_url else None)
        self._timeout_s = timeout_s

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError when no usable grade came in time, saying what came instead."""
        try:
            # litellm's own time-out was seen not to fire.
            grade = await asyncio.wait_for(self._grade(case), self._timeout_s)
        except TimeoutError:
            raise self._error(f"no grade within {self._timeout_s:g} s") from None
        return Verdict(score=grade.score, criteria={"llm": grade.score}, reason=grade.reason)

    async def _grade(self, case: JudgeCase) -> Grade:
        messages = [{"role": "user", "content": render_prompt(case)}]
        text = await self._complete(messages)
        grade = parse_grade(text)
        if grade is None:
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": _REPAIR}]
            text = await self._complete(messages)
            grade = parse_grade(text)
        if grade is None:
            raise self._error(f"two replies without a usable grade, the last one {text[:80]!r}")
        return grade

    async def _complete(self, messages: list[dict[str, str]]) -> str:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise its import fetches a price list
        import litellm  # noqa: PLC0415  slow to import, and only this judge needs it

        litellm.suppress_debug_info = True  # it prints advice on every error

        try:
            async for attempt in AsyncRetrying(
                stop=stop_after_attempt(_ATTEMPTS),
                wait=wait_random_exponential(multiplier=0.3, max=10),
                retry=retry_if_exception(_is_passing),
                reraise=True,
            ):
                with attempt:
                    response: Any = await litellm.acompletion(
                        model=self._model,
                        messages=messages,
                        base_url=self._base_url,
                        api_key=self._api_key,
                        temperature=0.0,
                        max_tokens=_MAX_TOKENS,
                        timeout=self._timeout_s,
                        num_retries=0,
                        max_retries=0,
                    )
        except OpenAIError as error:  # litellm's own exceptions are all derived from the client's
            raise self._error(f"{type(error).__name__}: {error}") from None
        return str(response.choices[0].message.content or "")

    def _error(self, what: str) -> JudgeError:
        text = what.replace(self._api_key, "***") if self._api_key and self._api_key != "unused" else what
        return JudgeError(
            f"the judge {self._model} failed: {text}", hint="check TEACHER_MODEL, TEACHER_BASE_URL, TEACHER_API_KEY"
        )


def render_prompt(case: JudgeCase) -> str:
    """The grading prompt. Data stands between fences with a random number, so no data can close its fence."""
    number = secrets.token_hex(8)
    values = {
        "fence": f"<<<{number}",
        "fence_end": f"{number}>>>",
        "question": case.question.question,
        "reference": case.question.answer,
        "rows": _rows(case),
        "answer": case.answer,
    }
    # One pass, so that a placeholder inside the data stays what it is.
    return _PLACEHOLDER.sub(lambda m: values.get(m.group(1), m.group(0)), _template(case.question.lang))


def parse_grade(text: str) -> Grade | None:
    """The grade in a reply, perhaps with prose around its JSON object; None when there is no valid one."""
    match = _OBJECT.search(text)
    if match is None:
        return None
    try:
        return Grade.model_validate(json.loads(match.group(0)))
    except (ValueError, ValidationError):
        return None


def _rows(case: JudgeCase) -> str:
    answers = [
        json.dumps({"columns": c.answer.columns, "records": c.answer.records}, ensure_ascii=False)
        for c in case.calls
        if c.answer.status == "ok"
    ]
    return "\n".join(answers)[:_MAX_ROWS_CHARS] or "(none)"


def _template(lang: Lang) -> str:
    return files("sql_agent.reward").joinpath("prompts", f"judge.{lang}.txt").read_text(encoding="utf-8")


def _is_passing(error: BaseException) -> bool:
    """Whether a second try may help: the endpoint is busy, broke, or was too slow."""
    status = getattr(error, "status_code", None)
    return status in _RETRIED_STATUS or type(error).__name__ in ("APIConnectionError", "Timeout")
