"""Ask a judge model until a reply is usable, with rate limits, time-outs and retries, and count the cost."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from openai import APIConnectionError, APITimeoutError, OpenAIError
from pydantic import BaseModel, ValidationError

from sql_agent.errors import JudgeCutOffError, JudgeError, JudgeRefusedError
from sql_agent.reward.judges.endpoint import (
    RETRIED_STATUS,
    CallLimits,
    EndpointLimiter,
    OutageError,
    RetryableError,
    retry,
)
from sql_agent.schemas import Usage
from sql_agent.system.messages import Outage

logger = logging.getLogger(__name__)

Form = TypeVar("Form", bound=BaseModel)

_SHOWN_CHARS = 300
_CHARS_PER_TOKEN = 2  # between English (4) and Chinese (1); corrected by the usage after the call
_RAISED_AT_MOST = 4  # limit as a multiple of max_tokens: a model that never ends its reply must not cost much
# Matches OpenAI's reasoning models (o1, o3-mini, gpt-5-nano), but not gpt-5-chat-latest or gpt-4o. litellm does not
# know models that are newer than itself.
_REASONS = re.compile(r"^(?:o\d|gpt-5)(?!.*chat)")
# OpenAI: "violating our usage policy", "rejected … by the safety system"; Azure: "content management policy".
_FILTERED = re.compile(r"usage polic|safety system|content[ _-]?(?:policy|filter|management)", re.IGNORECASE)
_NO_SCHEMA = re.compile(r"response_format|json_schema", re.IGNORECASE)
_START = re.compile(r'\{\s*"')
_MOST_STARTS = 1000  # maximum number of positions at which parsing is tried: each try may read the whole reply
_HINTS = {
    JudgeRefusedError: "choose a judging model, or a content filter, that allows these questions",
    JudgeCutOffError: "raise judge.max_tokens (now {max_tokens}); a model that thinks first needs several thousand",
    JudgeError: "check TEACHER_MODEL, TEACHER_BASE_URL, TEACHER_API_KEY and the section judge of the settings",
}


class JudgeClient:
    """A client of one judge model, at temperature 0 if the model accepts a temperature.

    A request takes at most `timeout_s` seconds. `base_url` is an OpenAI-compatible endpoint. Without an endpoint,
    litellm chooses the provider by the prefix of `model`.
    """

    def __init__(
        self,
        model: str,
        limits: CallLimits,
        *,
        timeout_s: float,
        max_tokens: int,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.model = model
        self._target = f"openai/{model}" if base_url else model
        self._base_url = base_url
        self._api_key = api_key or ("unused" if base_url else None)
        self._limiter = EndpointLimiter(limits)
        self._timeout_s = timeout_s
        self._max_tokens = max_tokens
        self._sends_schema = True  # False once the endpoint has refused a schema
        self._has_answered = False
        self._outage = Outage(f"The endpoint of the judge {model!r}", logger.warning)

    @property
    def identity(self) -> str:
        """What determines a reply besides the prompt: model, endpoint, response format and token limit."""
        return f"{self.model}@{(self._base_url or '').rstrip('/')}:json_schema:{self._max_tokens}"

    async def ask(
        self, prompt: str, form: type[Form], *, repair: str, accepts: Callable[[Form], bool] = lambda _: True
    ) -> tuple[Form, Usage]:
        """Return the first usable reply, parsed by the pydantic model `form`, and the usage of all requests.

        A reply is usable if it contains an object of `form` for which `accepts` returns true. After an unusable reply,
        the next request repeats the reply and adds the text `repair`. After a reply that was cut off, the token limit
        is doubled, at most twice. Raises JudgeRefusedError if the model refuses to grade, JudgeCutOffError if the reply
        is still cut off, and JudgeError after the last attempt or an error that a retry cannot mend.
        """
        messages = [{"role": "user", "content": prompt}]
        max_tokens, cut_off_at, usage = self._max_tokens, 0, Usage()

        async def once() -> Form:
            nonlocal messages, max_tokens, cut_off_at, usage
            usage += Usage(requests=1)
            response = await self._complete(messages, form.model_json_schema(), max_tokens)
            usage += _usage(response)
            text, finish_reason, refusal = _first_choice(response)
            if refusal or finish_reason == "content_filter":
                raise self._error(JudgeRefusedError, f"refused to grade: {refusal or finish_reason}", usage)
            cut_off_at = max_tokens if finish_reason == "length" else 0
            if cut_off_at:
                max_tokens = 2 * cut_off_at
                if max_tokens > _RAISED_AT_MOST * self._max_tokens:
                    raise self._error(JudgeCutOffError, f"was cut off at {cut_off_at} tokens", usage)
                raise RetryableError("the reply was cut off", wait_s=0.0)
            parsed = parse_reply(text, form)
            if parsed is None or not accepts(parsed):
                # The request repeats all replies: with the last one only, equal replies would give equal requests.
                shown = {"role": "assistant", "content": text or "(nothing)"}
                messages = [*messages, shown, {"role": "user", "content": repair}]
                raise RetryableError(f"no usable reply, the last one is {text[:80]!r}", wait_s=0.0)
            return parsed

        try:
            return await retry(once), usage
        except RetryableError as error:
            if cut_off_at:
                raise self._error(JudgeCutOffError, f"was cut off at {cut_off_at} tokens", usage) from None
            raise self._error(JudgeError, f"failed: {error} ({usage.requests} requests)", usage) from None
        except OpenAIError as error:
            if _status(error) == 400 and _FILTERED.search(str(error)):  # litellm drops the provider's error code
                raise self._error(JudgeRefusedError, f"refused to grade: {str(error)[:300]}", usage) from None
            raise self._error(JudgeError, f"failed: {_shown(error)}", usage) from None

    async def _complete(self, messages: list[dict[str, str]], schema: dict[str, Any], max_tokens: int) -> Any:
        estimate = sum(len(m["content"]) for m in messages) // _CHARS_PER_TOKEN + max_tokens
        request: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0.0}
        if _REASONS.match(self._target.rpartition("/")[2]):
            request = {"max_completion_tokens": max_tokens}
        if self._sends_schema:
            form = {"name": "reply", "schema": schema, "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        async with self._limiter.call(estimate):
            try:
                # litellm's own time-out does not always fire.
                async with asyncio.timeout(self._timeout_s):
                    response = await _litellm().acompletion(
                        model=self._target,
                        messages=messages,
                        base_url=self._base_url,
                        api_key=self._api_key,
                        timeout=self._timeout_s,
                        num_retries=0,
                        max_retries=0,
                        drop_params=True,
                        **request,
                    )
            except TimeoutError:
                self._outage.begin(f"did not answer within {self._timeout_s:g} s and is asked again")
                raise RetryableError(f"no reply within {self._timeout_s:g} s") from None
            except OpenAIError as error:  # the base of all of litellm's exceptions
                raise self._retryable_if_passing(error) from None
        self._has_answered = True
        self._outage.end()
        usage = _usage(response)
        self._limiter.spent(usage.prompt_tokens + usage.completion_tokens, estimated=estimate)
        return response

    def _retryable_if_passing(self, error: OpenAIError) -> Exception:
        """Return a RetryableError if a retry may succeed, else `error`; log an outage of the endpoint."""
        shown, status = self._without_key(_shown(error)), _status(error)
        if self._sends_schema and status in (400, 422) and _NO_SCHEMA.search(str(error)):
            self._sends_schema = False
            return RetryableError(shown, wait_s=0.0)
        if self._has_answered and _is_unreachable(error):
            self._outage.begin(f"does not answer any more and is asked again: {shown}")
            return OutageError(shown)
        if status not in RETRIED_STATUS and type(error).__name__ not in ("APIConnectionError", "Timeout"):
            return error
        if not self._has_answered:
            self._outage.begin(f"has not answered yet and is asked again: {shown}")
        headers = getattr(error, "litellm_response_headers", None) or {}
        seconds = str(headers.get("retry-after", ""))  # or a date, which few endpoints send
        return RetryableError(shown, wait_s=float(seconds) if seconds.isdecimal() else None)

    def _error(self, kind: type[JudgeError], what: str, usage: Usage) -> JudgeError:
        hint = _HINTS[kind].format(max_tokens=self._max_tokens)
        return kind(f"the judge {self.model} {self._without_key(what)}", hint=hint, usage=usage)

    def _without_key(self, text: str) -> str:
        return text.replace(self._api_key, "***") if self._api_key and self._api_key != "unused" else text


def parse_reply(text: str, form: type[Form]) -> Form | None:
    """Parse the JSON object in a reply `text` with the pydantic model `form`; None if `form` accepts no object.

    Thoughts, notes and code fences around the object are ignored. Also None if the reply has two different objects,
    because one of them may be a quote from the graded answer.
    """
    found: list[Form] = []
    for value in _objects(text.rpartition("</think>")[2]):
        try:
            found.append(form.model_validate(value))
        except ValidationError:
            continue
    return found[0] if found and all(other == found[0] for other in found) else None


def _objects(text: str) -> Iterator[Any]:
    """Yield the outermost complete JSON objects in `text`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice")
        return dict(pairs)

    decoder = json.JSONDecoder(object_pairs_hook=unique)
    end = 0
    for match in islice(_START.finditer(text), _MOST_STARTS):
        if match.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield value


def _shown(error: OpenAIError) -> str:
    """Return the type and the first line of an error, to which litellm appends tracebacks and whole responses."""
    said = (str(error).partition("Traceback (most recent")[0].strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {said[:_SHOWN_CHARS]}"


def _status(error: OpenAIError) -> int | None:
    return getattr(error, "status_code", None)


def _is_unreachable(error: BaseException | None) -> bool:
    """Return whether a failed connection caused `error`. Its status does not tell: litellm sets 500."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    if any(isinstance(cause, APITimeoutError | TimeoutError) for cause in causes):
        return False  # after a time-out the endpoint may only be busy
    return any(isinstance(cause, ConnectionError | APIConnectionError) for cause in causes)


def _first_choice(response: Any) -> tuple[str, str, str]:
    """Return text, finish reason and refusal of the first choice; without a choice, each is ""."""
    if not response.choices:
        return "", "", ""
    choice = response.choices[0]
    other = getattr(choice.message, "provider_specific_fields", None) or {}
    refusal = getattr(choice.message, "refusal", None) or other.get("refusal")
    return str(choice.message.content or ""), str(choice.finish_reason), str(refusal or "")


def _usage(response: Any) -> Usage:
    tokens = getattr(response, "usage", None)
    try:
        cost = float(_litellm().completion_cost(completion_response=response))
    except Exception:  # litellm raises a bare Exception for a model that is not in its price list
        cost = None
    return Usage(
        prompt_tokens=getattr(tokens, "prompt_tokens", 0) or 0,
        completion_tokens=getattr(tokens, "completion_tokens", 0) or 0,
        cost_usd=cost,
    )


def _litellm() -> Any:
    import litellm  # noqa: PLC0415  slow to import, and only judges that call a model need it

    litellm.suppress_debug_info = True  # litellm prints advice on every error
    return litellm
