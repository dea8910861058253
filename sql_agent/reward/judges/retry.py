"""Send a request to a judge again when the failure may pass, with jitter and up to a number of attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from sql_agent.system.outage import OUTAGE_S

T = TypeVar("T")

RETRIED_STATUS = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_JITTER = wait_random_exponential(multiplier=0.3, max=10)
_LONGEST_WAIT_S = 60.0


class RetryableError(Exception):
    """An attempt failed and the next may succeed: the endpoint was busy, broke, was slow, or sent an unusable reply.

    `wait_s` is how many seconds the endpoint asked for, or 0 when there is no reason to wait; None leaves it to the
    jitter.
    """

    def __init__(self, what: str, *, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class OutageError(RetryableError):
    """The endpoint answered before and cannot be reached now, as while it restarts."""


async def retry(once: Callable[[], Awaitable[T]], attempts: int) -> T:
    """Return the result of `once`, called again after a RetryableError until it was called `attempts` times.

    After an OutageError it is called again for `OUTAGE_S` seconds, however often.

    Raises the last RetryableError, and at once whatever else `once` raises.
    """

    def stop(state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, OutageError) and (state.seconds_since_start or 0.0) < OUTAGE_S:
            return False
        return state.attempt_number >= attempts

    retrying = AsyncRetrying(stop=stop, wait=_wait, retry=retry_if_exception_type(RetryableError), reraise=True)
    return await retrying(once)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait_s if isinstance(error, RetryableError) else None
    return _JITTER(state) if asked is None else min(asked, _LONGEST_WAIT_S)
