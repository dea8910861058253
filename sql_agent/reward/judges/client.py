"""Send requests to a judge model until a reply is usable, with rate limits, time-outs, retries and a count of costs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from openai import APIConnectionError, APITimeoutError, OpenAIError

from sql_agent.errors import JudgeCutOffError, JudgeError, JudgeRefusedError
from sql_agent.reward.judges.endpoint import (
    RETRIED_STATUS,
    CallLimits,
    EndpointLimiter,
    OutageError,
    RetryableError,
    retry,
)
from sql_agent.reward.judges.reply import Form, parse_reply
from sql_agent.schemas import Usage
from sql_agent.system.messages import OUTAGE_S, Outage

logger = logging.getLogger(__name__)

PATIENCE_S = 15.0  # a slow request, or a wait that the endpoint asks for, is reported after this time
_SHOWN_CHARS = 300
_CHARS_PER_TOKEN = 2  # between English (4) and Chinese (1); corrected by the usage after the call
_RAISED_AT_MOST = 4  # times max_tokens: a model that never ends its reply must not become expensive
# OpenAI's reasoning models: o1, o3-mini, gpt-5-nano, but not gpt-5-chat-latest or gpt-4o.
_REASONS = re.compile(r"^(?:o\d|gpt-5)(?!.*chat)")
# OpenAI: "violating our usage policy", "rejected … by the safety system"; Azure: "content management policy".
_FILTERED = re.compile(r"usage polic|safety system|content[ _-]?(?:policy|filter|management)", re.IGNORECASE)
_NO_SCHEMA = re.compile(r"response_format|json_schema", re.IGNORECASE)


@dataclass(frozen=True)
class _Reply:
    text: str
    finish_reason: str
    refusal: str
    usage: Usage


class _CutOffError(RetryableError):
    """The reply was cut off at the limit of tokens."""


class JudgeClient:
    """A client of one judge model, at temperature 0 if the model accepts a temperature.

    A request takes at most `timeout_s` seconds. `base_url` is an OpenAI-compatible endpoint. Without it, litellm
    chooses the provider by the prefix of `model`.
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
        self._sends_schema = True  # until the endpoint refuses one
        self._has_answered = False
        self._outage = Outage(f"The endpoint of the judge {model!r}", logger.warning)
        self._reported_slow = False

    @property
    def identity(self) -> str:
        """All that decides a reply except the prompt: model, endpoint, form of replies, and limit of tokens."""
        return f"{self.model}@{(self._base_url or '').rstrip('/')}:json_schema:{self._max_tokens}"

    async def ask(
        self, prompt: str, form: type[Form], *, repair: str, accepts: Callable[[Form], bool] = lambda _: True
    ) -> tuple[Form, Usage]:
        """Return the first usable reply as an object of `form`, and the usage of all requests.

        A reply is usable if it contains an object of `form` for which `accepts` returns true. After an unusable reply,
        the next request shows that reply and the text `repair` to the model. After a reply that was cut off, the limit
        of tokens is doubled, at most twice. Raises JudgeRefusedError if the model refuses to grade, JudgeCutOffError if
        the reply is still cut off, and JudgeError after the last attempt or an error that a retry cannot mend. Each
        error has the usage of all requests.
        """
        messages = [{"role": "user", "content": prompt}]
        max_tokens, usage = self._max_tokens, Usage()

        async def once() -> Form:
            nonlocal messages, max_tokens, usage
            usage += Usage(requests=1)
            reply = await self._complete(messages, form.model_json_schema(), max_tokens)
            usage += reply.usage
            if reply.refusal or reply.finish_reason == "content_filter":
                raise self._refused(reply.refusal or reply.finish_reason, usage)
            if reply.finish_reason == "length":
                if max_tokens >= _RAISED_AT_MOST * self._max_tokens:
                    raise self._cut_off(max_tokens, usage)
                max_tokens *= 2
                raise _CutOffError("the reply was cut off", wait_s=0.0)
            parsed = parse_reply(reply.text, form)
            if parsed is None or not accepts(parsed):
                # All replies so far: with the last one alone, two equal replies would make two equal requests.
                shown = {"role": "assistant", "content": reply.text or "(nothing)"}
                messages = [*messages, shown, {"role": "user", "content": repair}]
                raise RetryableError(f"no usable reply, the last one is {reply.text[:80]!r}", wait_s=0.0)
            return parsed

        try:
            return await retry(once), usage
        except _CutOffError:
            raise self._cut_off(max_tokens // 2, usage) from None
        except RetryableError as error:
            raise self._failed(f"{error} ({usage.requests} requests)", usage) from None
        except OpenAIError as error:
            if _status(error) == 400 and _FILTERED.search(str(error)):  # by words: litellm loses the code of the error
                raise self._refused(str(error), usage) from None
            raise self._failed(_shown(error), usage) from None

    async def _complete(self, messages: list[dict[str, str]], schema: dict[str, Any], max_tokens: int) -> _Reply:
        estimate = sum(len(m["content"]) for m in messages) // _CHARS_PER_TOKEN + max_tokens
        request: dict[str, Any] = {"messages": messages, **_sampling(self._target, max_tokens)}
        if self._sends_schema:
            form = {"name": "reply", "schema": schema, "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": form}
        async with self._limiter.call(estimate):
            try:
                response = await self._send(request)
            except TimeoutError:
                self._outage.begin(f"did not answer within {self._timeout_s:g} s and is asked again")
                raise RetryableError(f"no reply within {self._timeout_s:g} s") from None
            except OpenAIError as error:  # the base of all of litellm's exceptions
                raise self._retryable_if_passing(error) from None
        self._has_answered = True
        self._outage.end()
        reply = _reply(response)
        self._limiter.spent(reply.usage.prompt_tokens + reply.usage.completion_tokens, estimated=estimate)
        return reply

    async def _send(self, request: dict[str, Any]) -> Any:
        slow = asyncio.get_running_loop().call_later(PATIENCE_S, self._report_slow)
        try:
            # litellm's own time-out does not always fire.
            return await asyncio.wait_for(
                _litellm().acompletion(
                    model=self._target,
                    base_url=self._base_url,
                    api_key=self._api_key,
                    timeout=self._timeout_s,
                    num_retries=0,
                    max_retries=0,
                    **request,
                ),
                self._timeout_s,
            )
        finally:
            slow.cancel()

    def _report_slow(self) -> None:
        """Report a slow judge once: a model that thinks for long is slow at each request."""
        if not self._reported_slow:
            self._reported_slow = True
            self._outage.begin(
                f"has not answered a request for {PATIENCE_S:.0f} s; each may take {self._timeout_s:g} s"
            )

    def _retryable_if_passing(self, error: OpenAIError) -> Exception:
        """Return a RetryableError if a retry may succeed, else `error`; report an endpoint that is down."""
        shown, wait_s = self._without_key(_shown(error)), _requested_wait(error)
        if self._has_answered and _is_unreachable(error):
            self._outage.begin(f"does not answer any more; it is asked for {OUTAGE_S:.0f} s.")
            return OutageError(shown)
        if self._sends_schema and _status(error) in (400, 422) and _NO_SCHEMA.search(str(error)):
            self._sends_schema = False
            return RetryableError(shown, wait_s=0.0)
        if _status(error) not in RETRIED_STATUS and type(error).__name__ not in ("APIConnectionError", "Timeout"):
            return error
        if not self._has_answered:
            self._outage.begin(f"has not answered yet and is asked again: {shown}")
        elif (wait_s or 0.0) >= PATIENCE_S:
            self._outage.begin(f"asked for {wait_s:.0f} s without requests and is asked again then: {shown}")
        return RetryableError(shown, wait_s=wait_s)

    def _refused(self, why: str, usage: Usage) -> JudgeError:
        return JudgeRefusedError(
            f"the judge {self.model} refused to grade: {self._without_key(why)[:300]}",
            hint="choose a judging model, or a content filter, that allows these questions",
            usage=usage,
        )

    def _cut_off(self, max_tokens: int, usage: Usage) -> JudgeError:
        return JudgeCutOffError(
            f"the reply of the judge {self.model} was cut off at {max_tokens} tokens",
            hint=f"raise judge.max_tokens (now {self._max_tokens}); a model that thinks first needs several thousand",
            usage=usage,
        )

    def _failed(self, what: str, usage: Usage) -> JudgeError:
        return JudgeError(
            f"the judge {self.model} failed: {self._without_key(what)}",
            hint="check TEACHER_MODEL, TEACHER_BASE_URL, TEACHER_API_KEY and the section judge of the settings",
            usage=usage,
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._api_key, "***") if self._api_key and self._api_key != "unused" else text


def _shown(error: OpenAIError) -> str:
    """Return the type of an error and the first line of its text: litellm appends tracebacks and whole responses."""
    said = (str(error).partition("Traceback (most recent")[0].strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {said[:_SHOWN_CHARS]}"


def _status(error: OpenAIError) -> int | None:
    return getattr(error, "status_code", None)


def _is_unreachable(error: BaseException) -> bool:
    """Return whether the connection failed or broke, by the causes of `error`: litellm reports a status 500."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    if any(isinstance(cause, APITimeoutError | TimeoutError) for cause in causes):
        return False  # after a time-out the endpoint may only be busy
    return any(isinstance(cause, ConnectionError | APIConnectionError) for cause in causes)


def _requested_wait(error: OpenAIError) -> float | None:
    """Return the seconds in a Retry-After header; None without the header, or if it is a date."""
    headers = getattr(error, "litellm_response_headers", None) or {}
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def _sampling(target: str, max_tokens: int) -> dict[str, Any]:
    """Return the parameters for temperature and limit of tokens that the model accepts.

    Reasoning models are recognised by name, because litellm 1.83.0 lists temperature among the parameters of o3 and
    gpt-5 and then refuses any value but 1, and because litellm does not know models that are newer than itself.
    """
    if _REASONS.match(target.rpartition("/")[2]):
        return {"max_completion_tokens": max_tokens}
    supported = _litellm().get_supported_openai_params(target)  # None for a model that litellm does not know
    accepted = supported is None or "temperature" in supported
    return {"max_tokens": max_tokens, **({"temperature": 0.0} if accepted else {})}


def _reply(response: Any) -> _Reply:
    """Return the first choice of a response. A response without choices gives an empty text, which is not usable."""
    tokens = getattr(response, "usage", None)
    usage = Usage(
        prompt_tokens=getattr(tokens, "prompt_tokens", 0) or 0,
        completion_tokens=getattr(tokens, "completion_tokens", 0) or 0,
        cost_usd=_cost(response),
    )
    if not response.choices:
        return _Reply("", "", "", usage)
    choice = response.choices[0]
    other = getattr(choice.message, "provider_specific_fields", None) or {}
    refusal = getattr(choice.message, "refusal", None) or other.get("refusal")
    return _Reply(str(choice.message.content or ""), str(choice.finish_reason), str(refusal or ""), usage)


def _cost(response: Any) -> float | None:
    try:
        return float(_litellm().completion_cost(completion_response=response))
    except Exception:  # litellm raises a bare Exception for a model that is not in its price list
        return None


def _litellm() -> Any:
    import litellm  # noqa: PLC0415  slow to import, and only judges that call a model need it

    litellm.suppress_debug_info = True  # it prints advice on every error
    return litellm
