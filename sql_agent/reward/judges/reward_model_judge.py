"""Grade answers with a reward model over HTTP: POST {prompt, response} -> {score}."""

from __future__ import annotations

import httpx
from pydantic import BaseModel, Field, ValidationError

from sql_agent.errors import ConfigError, JudgeError
from sql_agent.reward import JudgeCase, Verdict
from sql_agent.reward.judges.endpoint import RETRIED_STATUS, CallLimits, EndpointLimiter, RetryableError, retry
from sql_agent.schemas import Usage

_ADDRESS = "write REWARD_MODEL_URL as http://HOST:PORT/PATH"


class _Reply(BaseModel):
    score: float = Field(strict=True)


class RewardModelJudge:
    """The judge "reward-model". The model gets the question and the answer, but neither the reference nor the rows.

    The range `scale` of the model's scores is mapped to 0.0–1.0. A score outside of `scale` is an error, because
    clipping would hide a wrong scale.
    """

    name = "reward-model"

    def __init__(self, url: str, limits: CallLimits, *, timeout_s: float, scale: tuple[float, float]) -> None:
        self._url = url
        self._shown = _without_secrets(url)
        self._limiter = EndpointLimiter(limits)
        self._timeout_s = timeout_s
        self._low, self._high = scale

    @property
    def identity(self) -> str:
        return f"reward-model/1:{self._shown}:{self._low:g}:{self._high:g}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError if the model gives no score, or a score outside of its scale."""
        requests = 0

        async def once() -> httpx.Response:
            nonlocal requests
            requests += 1
            body = {"prompt": case.question.question, "response": case.answer}
            async with self._limiter.call(0), httpx.AsyncClient(timeout=self._timeout_s) as client:
                try:
                    response = await client.post(self._url, json=body)
                except httpx.TransportError as error:
                    raise RetryableError(f"{type(error).__name__}: {error}") from None
            if response.status_code in RETRIED_STATUS:
                raise RetryableError(f"status {response.status_code}")
            return response

        # A bad reply is not retried, because a reward model gives the same reply to the same request.
        try:
            response = await retry(once)
            response.raise_for_status()
            raw = _Reply.model_validate_json(response.content).score
        except (RetryableError, httpx.HTTPError, ValidationError) as error:
            raise self._error(str(error), requests) from None
        if not self._low <= raw <= self._high:
            raise self._error(f"score {raw:g} is not within {self._low:g} to {self._high:g}", requests)
        score = (raw - self._low) / (self._high - self._low)
        return Verdict(score=score, criteria={"raw": raw}, usage=Usage(requests=requests))

    def _error(self, what: str, requests: int) -> JudgeError:
        shown = what.replace(self._url, self._shown)
        return JudgeError(
            f"the reward model at {self._shown} failed after {requests} requests: {shown}",
            hint="check REWARD_MODEL_URL and judge.reward_model_range",
            usage=Usage(requests=requests),
        )


def _without_secrets(url: str) -> str:
    """Return `url` without user, password and query, whose secrets would be written to records and reports.

    Raises ConfigError if `url` is not the URL of a server.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"REWARD_MODEL_URL is not a URL: {error}", hint=_ADDRESS) from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError("REWARD_MODEL_URL is not a URL of a server", hint=_ADDRESS)
    return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
