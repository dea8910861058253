"""Grade answers with a reward model over HTTP: POST {prompt, response} -> {score}."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

import httpx

from sql_agent.errors import ConfigError, JudgeError
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.endpoint import RETRIED_STATUS, CallLimits, EndpointLimiter, RetryableError, retry
from sql_agent.schemas import Usage

_ADDRESS = "write it as http://HOST:PORT/PATH"


class RewardModelJudge:
    """The judge "reward-model". The model gets the question and the answer, but neither the reference nor the rows.

    `low` and `high` are the ends of the model's scale, which is mapped to 0.0–1.0. A score outside of the scale is an
    error, because clipping would hide a wrong scale.
    """

    name = "reward-model"

    def __init__(self, url: str, limits: CallLimits, *, timeout_s: float, low: float = 0.0, high: float = 1.0) -> None:
        self._url = url
        self._shown = _without_secrets(url)
        self._limiter = EndpointLimiter(limits)
        self._timeout_s = timeout_s
        self._low, self._high = low, high
        # A client for each event loop, to which connections belong; created on first use, after the runners forked.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    @property
    def identity(self) -> str:
        return f"reward-model/1:{self._shown}:{self._low:g}:{self._high:g}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError if the model gives no score, or a score outside of its scale."""
        requests = 0

        async def once() -> httpx.Response:
            nonlocal requests
            requests += 1
            return await self._post({"prompt": case.question.question, "response": case.answer})

        try:
            response = await retry(once)
        except RetryableError as error:
            raise self._error(f"{error} ({requests} requests)", requests) from None
        except httpx.HTTPError as error:
            raise self._error(f"{type(error).__name__}: {error}", requests) from None
        # An answered request is not retried: a reward model gives the same answer to the same request.
        if response.status_code != httpx.codes.OK:
            raise self._error(f"status {response.status_code}: {response.text[:80]!r}", requests)
        try:
            reply = response.json()
        except ValueError:
            raise self._error(f"the reply is not JSON: {response.text[:80]!r}", requests) from None
        raw = reply.get("score") if isinstance(reply, dict) else None
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise self._error(f"the reply has no number under 'score': {str(reply)[:80]}", requests)
        if not self._low <= raw <= self._high:
            raise self._error(f"score {raw:g} is not within {self._low:g} to {self._high:g}", requests)
        score = (raw - self._low) / (self._high - self._low)
        return Verdict(score=score, criteria={"raw": float(raw)}, usage=Usage(requests=requests))

    async def _post(self, body: dict[str, str]) -> httpx.Response:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = httpx.AsyncClient(timeout=self._timeout_s)
        async with self._limiter.call(0):
            try:
                response = await self._clients[loop].post(self._url, json=body)
            except httpx.TransportError as error:
                raise RetryableError(f"{type(error).__name__}: {error}") from None
        if response.status_code in RETRIED_STATUS:
            raise RetryableError(f"status {response.status_code}")
        return response

    def _error(self, what: str, requests: int) -> JudgeError:
        return JudgeError(
            f"the reward model at {self._shown} failed: {what}",
            hint="check REWARD_MODEL_URL and judge.reward_model_range",
            usage=Usage(requests=requests),
        )


def _without_secrets(url: str) -> str:
    """Return `url` without user, password and query, because a secret in it would be written to records and reports.

    Raises ConfigError if `url` is not the URL of a server.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"REWARD_MODEL_URL is not a URL: {error}", hint=_ADDRESS) from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError("REWARD_MODEL_URL is not a URL of a server", hint=_ADDRESS)
    return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
