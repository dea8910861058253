"""Limit the rate of requests to a judge's endpoint, and retry failed requests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from sql_agent.system.messages import OUTAGE_S

T = TypeVar("T")

ATTEMPTS = 6  # maximum number of requests for one grading, with retries and requests to mend a reply
RETRIED_STATUS = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_FIRST_WAIT_S, _LONGEST_JITTER_S = 0.3, 10.0
_LONGEST_WAIT_S = 60.0  # maximum wait that an endpoint can ask for


class CallLimits(NamedTuple):
    """The limits of one endpoint for one process; None means no limit."""

    concurrency: int = 32
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class _Pace:
    """Spaces requests or tokens evenly. A token bucket would allow twice the rate in the first minute."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_per_unit = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def wait(self, units: float) -> None:
        """Sleep until `units` (requests or tokens) may be spent."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + units * self._seconds_per_unit
        if start > now:
            await asyncio.sleep(start - now)

    def correct(self, units: float) -> None:
        """Charge `units` in addition to the estimate; negative `units` are refunded."""
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
        """Wait until the limits allow a call, which lasts until the context ends."""
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = asyncio.Semaphore(self._concurrency)
        async with self._slots[loop]:
            await self._requests.wait(1)
            await self._tokens.wait(estimated_tokens)
            yield

    def spent(self, tokens: int, *, estimated: int) -> None:
        """Replace the `estimated` tokens of a finished call by the `tokens` that it used."""
        self._tokens.correct(tokens - estimated)


class RetryableError(Exception):
    """A request failed, but a retry may succeed.

    `wait_s` is the wait before the retry in seconds, for example from the header Retry-After. None means a random wait
    that grows with the number of attempts.
    """

    def __init__(self, what: str, *, wait_s: float | None = None) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class OutageError(RetryableError):
    """The endpoint answered before, and is unreachable now."""


async def retry(once: Callable[[], Awaitable[T]]) -> T:
    """Call `once` up to `ATTEMPTS` times, until it raises no RetryableError, and return its result.

    An OutageError does not end the calls before `OUTAGE_S` seconds have passed. Raises the last RetryableError.
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
