"""Send requests to the endpoint of a judge: within its limits, and again after a failure that may pass."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field

from sql_agent.system.messages import OUTAGE_S

T = TypeVar("T")

ATTEMPTS = 6  # requests for one grading, retries and repairs included
RETRIED_STATUS = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_FIRST_WAIT_S, _LONGEST_JITTER_S = 0.3, 10.0
_LONGEST_WAIT_S = 60.0  # however long the endpoint asks to wait


class CallLimits(BaseModel):
    """Limits of one endpoint for a whole run; None is no limit. `share` divides them among several processes."""

    model_config = ConfigDict(frozen=True)

    concurrency: int = Field(32, gt=0)
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)

    def share(self, processes: int) -> CallLimits:
        """Return the part of one of `processes` processes; each may make at least one call at a time."""
        return CallLimits(
            concurrency=max(1, self.concurrency // processes),
            requests_per_minute=self.requests_per_minute and self.requests_per_minute / processes,
            tokens_per_minute=self.tokens_per_minute and self.tokens_per_minute / processes,
        )


class _Pace:
    """Spaces units evenly, without a burst: a token bucket would let twice the rate through in its first minute."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_per_unit = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def wait(self, units: float) -> None:
        """Return when `units` may be spent."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + units * self._seconds_per_unit
        if start > now:
            await asyncio.sleep(start - now)

    def correct(self, units: float) -> None:
        """Add what was spent beyond the estimate; a negative number gives units back."""
        self._next += units * self._seconds_per_unit


class EndpointLimiter:
    """Delays calls until all of `limits` allow them."""

    def __init__(self, limits: CallLimits) -> None:
        self._concurrency = limits.concurrency
        # A semaphore belongs to an event loop, and a script may call asyncio.run twice.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._requests = _Pace(limits.requests_per_minute)
        self._tokens = _Pace(limits.tokens_per_minute)

    @asynccontextmanager
    async def call(self, estimated_tokens: int) -> AsyncIterator[None]:
        """Wait for a turn, then occupy one of the slots until the context is left."""
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = asyncio.Semaphore(self._concurrency)
        async with self._slots[loop]:
            await self._requests.wait(1)
            await self._tokens.wait(estimated_tokens)
            yield

    def spent(self, tokens: int, *, estimated: int) -> None:
        """Correct the estimate of a finished call."""
        self._tokens.correct(tokens - estimated)


class RetryableError(Exception):
    """A request failed and the next may succeed: the endpoint was busy, broke, was slow, or sent an unusable reply.

    `wait_s` is how many seconds the endpoint asked for, or 0 when there is no reason to wait; None is a random time
    that grows with the attempts.
    """

    def __init__(self, what: str, *, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class OutageError(RetryableError):
    """The endpoint answered before and cannot be reached now, for example while it restarts."""


async def retry(once: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `once`, called up to `ATTEMPTS` times while it raises RetryableError.

    After an OutageError it is called again for `OUTAGE_S` seconds, however often. Raises the last RetryableError, and
    at once whatever else `once` raises.
    """
    started, attempt = time.monotonic(), 0
    while True:
        attempt += 1
        try:
            return await once()
        except RetryableError as error:
            in_outage = isinstance(error, OutageError) and time.monotonic() - started < OUTAGE_S
            if attempt >= ATTEMPTS and not in_outage:
                raise
            wait_s = error.wait_s
        if wait_s is None:
            wait_s = random.uniform(0, min(_LONGEST_JITTER_S, _FIRST_WAIT_S * 2.0**attempt))
        await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))
