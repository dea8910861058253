"""Keep calls within the limits of an endpoint: so many at once, so many requests and tokens a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field


class CallLimits(BaseModel):
    """Limits of one endpoint for a whole run; None is no limit. `share` gives each of several processes its part."""

    model_config = ConfigDict(frozen=True)

    concurrency: int = Field(32, gt=0)
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)

    def share(self, processes: int) -> CallLimits:
        """Return the part of one of `processes` processes. At least one call at once, so with more processes than
        `concurrency` there can be as many calls as processes."""
        return CallLimits(
            concurrency=max(1, self.concurrency // processes),
            requests_per_minute=self.requests_per_minute and self.requests_per_minute / processes,
            tokens_per_minute=self.tokens_per_minute and self.tokens_per_minute / processes,
        )


class RateLimiter:
    """Spaces units evenly, without a burst: no minute ever holds more than the rate, plus the one call under way.

    A token bucket would let twice the rate through in its first minute.
    """

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
        """Add what was spent beyond the estimate; negative gives back."""
        self._next += units * self._seconds_per_unit


class EndpointLimiter:
    """Holds back calls until all of `limits` allow them."""

    def __init__(self, limits: CallLimits) -> None:
        self._concurrency = limits.concurrency
        # A semaphore belongs to an event loop, and a script may well call asyncio.run twice.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._requests = RateLimiter(limits.requests_per_minute)
        self._tokens = RateLimiter(limits.tokens_per_minute)

    @asynccontextmanager
    async def call(self, estimated_tokens: int) -> AsyncIterator[None]:
        """Wait for a turn, then hold a slot while inside."""
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
