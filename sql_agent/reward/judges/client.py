"""Ask a judging model until it gives a usable reply: limits, time-outs, retries, repairs, and what it cost."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from openai import OpenAIError
from pydantic import BaseModel, ValidationError

from sql_agent.errors import JudgeError
from sql_agent.reward.judges.rate_limit import CallLimits, EndpointLimiter
from sql_agent.reward.judges.retry import RETRIED_STATUS, RetryableError, retry
from sql_agent.schemas import Usage

T = TypeVar("T")
Form = TypeVar("Form", bound=BaseModel)
Messages = list[dict[str, str]]
Structure = Literal["json_schema", "json_object", "none"]

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_CHARS_PER_TOKEN = 2  # between English (4) and Chinese (1); the true number corrects it after the call


def read_reply(text: str, form: type[Form]) -> Form | None:
    """The JSON object in a reply, perhaps with thoughts or prose around it; None when it is not of this form."""
    match = _OBJECT.search(text.rpartition("</think>")[2])
    if match is None:
        return None
    try:
        return form.model_validate_json(match.group(0))
    except ValidationError:
        return None


@dataclass(frozen=True)
class JudgeEndpoint:
    """Where a judging model is. With `base_url` it is OpenAI-compatible, else litellm goes by the model's prefix."""

    model: str
    base_url: str | None = None
    api_key: str | None = None


class JudgeClient:
    """One judging model, at temperature 0. A request ends within `timeout_s` seconds, a question after `attempts`."""

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        limits: CallLimits,
        *,
        timeout_s: float,
        attempts: int,
        max_tokens: int,
        structure: Structure,
    ) -> None:
        self.model = endpoint.model
        self._target = f"openai/{endpoint.model}" if endpoint.base_url else endpoint.model
        self._base_url = endpoint.base_url
        self._api_key = endpoint.api_key or ("unused" if endpoint.base_url else None)
        self._gate = EndpointLimiter(limits)
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._max_tokens = max_tokens
        self._structure = structure

    async def ask(
        self, prompt: str, schema: dict[str, Any], parse: Callable[[str], T | None], *, repair: str
    ) -> tuple[T, Usage]:
        """What `parse` makes of a reply, and all that was spent. `parse` gives None for a reply that is unusable.

        Such a reply is shown to the model again with `repair`. Raises JudgeError, with what was spent, after the last
        attempt or when another one cannot help.
        """
        first: Messages = [{"role": "user", "content": prompt}]
        messages, usage = first, Usage()

        async def once() -> T:
            nonlocal messages, usage
            usage += Usage(requests=1)
            text, spent = await self._complete(messages, schema)
            usage += spent
            parsed = parse(text)
            if parsed is None:
                messages = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": repair}]
                raise RetryableError(f"no usable reply, the last one is {text[:80]!r}", wait_s=0.0)
            return parsed

        try:
            return await retry(once, self._attempts), usage
        except RetryableError as error:
            raise self._error(f"{error} ({self._attempts} requests)", usage) from None
        except OpenAIError as error:
            raise self._error(f"{type(error).__name__}: {error}", usage) from None

    async def _complete(self, messages: Messages, schema: dict[str, Any]) -> tuple[str, Usage]:
        litellm = _litellm()
        estimate = sum(len(m["content"]) for m in messages) // _CHARS_PER_TOKEN + self._max_tokens
        async with self._gate.call(estimate):
            try:
                # litellm's own time-out was seen not to fire.
                response = await asyncio.wait_for(
                    litellm.acompletion(
                        model=self._target,
                        messages=messages,
                        base_url=self._base_url,
                        api_key=self._api_key,
                        temperature=0.0,
                        max_tokens=self._max_tokens,
                        response_format=_response_format(self._structure, schema),
                        timeout=self._timeout_s,
                        num_retries=0,
                        max_retries=0,
                    ),
                    self._timeout_s,
                )
            except TimeoutError:
                raise RetryableError(f"no reply within {self._timeout_s:g} s") from None
            except OpenAIError as error:  # litellm's own exceptions are all derived from the client's
                if _is_passing(error):
                    raise RetryableError(f"{type(error).__name__}: {error}", wait_s=_asked_to_wait(error)) from None
                raise
        usage = _usage(response)
        self._gate.spent(usage.prompt_tokens + usage.completion_tokens, estimated=estimate)
        return str(response.choices[0].message.content or ""), usage

    def _error(self, what: str, usage: Usage) -> JudgeError:
        text = what.replace(self._api_key, "***") if self._api_key and self._api_key != "unused" else what
        return JudgeError(
            f"the judge {self.model} failed: {text}",
            hint="check TEACHER_MODEL, TEACHER_BASE_URL, TEACHER_API_KEY and the section judge of the settings",
            usage=usage,
        )


def _response_format(structure: Structure, schema: dict[str, Any]) -> dict[str, Any] | None:
    if structure == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}
    return {"type": "json_object"} if structure == "json_object" else None


def _is_passing(error: OpenAIError) -> bool:
    status = getattr(error, "status_code", None)
    return status in RETRIED_STATUS or type(error).__name__ in ("APIConnectionError", "Timeout")


def _asked_to_wait(error: OpenAIError) -> float | None:
    """The seconds of a Retry-After header; None without one, or with a date in it."""
    headers = getattr(error, "litellm_response_headers", None) or {}
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None


def _usage(response: Any) -> Usage:
    tokens = getattr(response, "usage", None)
    return Usage(
        prompt_tokens=getattr(tokens, "prompt_tokens", 0) or 0,
        completion_tokens=getattr(tokens, "completion_tokens", 0) or 0,
        cost_usd=_cost(response),
    )


def _cost(response: Any) -> float | None:
    try:
        return float(_litellm().completion_cost(completion_response=response))
    except Exception:  # litellm raises a bare Exception for a model that its price list lacks
        return None


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise its import fetches a price list
    import litellm  # noqa: PLC0415  slow to import, and only judges that call a model need it

    litellm.suppress_debug_info = True  # it prints advice on every error
    return litellm
