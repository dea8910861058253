"""Send spans to the store, many in one request, because its single thread spends its time per request."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from agentlightning.semconv import LightningResourceAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode

from sql_agent.errors import TrainingError
from sql_agent.rollouts.gathering import gathering_s
from sql_agent.system.tokens import bearer

logger = logging.getLogger(__name__)

_RETRIES = 3
_TIMEOUT = aiohttp.ClientTimeout(total=30)


def make_span(
    name: str,
    attributes: Mapping[str, Any],
    *,
    rollout_id: str,
    attempt_id: str,
    sequence_id: int | None = None,
    seconds: tuple[float, float],
) -> ReadableSpan:
    """Return a span of a rollout's attempt; `seconds` are its start and its end in Unix time.

    Without `sequence_id` the store gives the span its number.
    """
    owner: dict[str, str | int] = {
        LightningResourceAttributes.ROLLOUT_ID.value: rollout_id,
        LightningResourceAttributes.ATTEMPT_ID.value: attempt_id,
    }
    if sequence_id is not None:
        owner[LightningResourceAttributes.SPAN_SEQUENCE_ID.value] = sequence_id
    start, end = seconds
    return ReadableSpan(
        name=name,
        context=SpanContext(random.getrandbits(128), random.getrandbits(64), is_remote=False),
        resource=Resource(owner),  # not Resource.create, because that inspects the machine each time
        attributes=dict(attributes),
        status=Status(StatusCode.OK),
        start_time=int(start * 1e9),
        end_time=int(end * 1e9),
    )


class SpanExporter:
    """Posts spans to a store's OTLP endpoint, from the event loop of the process that uses it."""

    def __init__(self) -> None:
        self._queue: list[tuple[Sequence[ReadableSpan], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._took_s = 0.0

    def send(self, endpoint: str, spans: Sequence[ReadableSpan], *, token: str | None = None) -> asyncio.Future[None]:
        """Queue `spans` and return a future that ends when the store, which may want `token`, has them.

        The future holds a TrainingError when the store did not accept them in three tries.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((spans, stored))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued(endpoint, token))
        return stored

    async def close(self) -> None:
        """Close the connections to the store."""
        if self._session is not None:
            await self._session.close()

    async def _send_queued(self, endpoint: str, token: str | None) -> None:
        while self._queue:
            await asyncio.sleep(gathering_s(self._took_s))
            batch, self._queue = self._queue, []
            started = time.monotonic()
            error = await self._post(endpoint, token, [span for spans, _ in batch for span in spans])
            self._took_s = time.monotonic() - started
            for _, stored in batch:
                if error is None and not stored.done():
                    stored.set_result(None)
                elif error is not None and not stored.done():
                    stored.set_exception(error)

    async def _post(self, endpoint: str, token: str | None, spans: list[ReadableSpan]) -> TrainingError | None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, headers={"Content-Type": "application/x-protobuf"})
        cause = ""
        for attempt in range(_RETRIES):
            try:
                body = encode_spans(spans).SerializeToString()
                async with self._session.post(endpoint, data=body, headers=bearer(token)) as response:
                    response.raise_for_status()
                    return None
            except Exception as error:  # aiohttp lets a RuntimeError of uvloop through; whoever waits must get it
                # Not a warning, because it is tried again, and the store may end first when a run is stopped.
                logger.info("could not send %d spans to %s: %r", len(spans), endpoint, error)
                cause = f"{type(error).__name__}: {error}"
            await asyncio.sleep(0.2 * 2**attempt)
        return TrainingError(
            f"the store at {endpoint} did not accept {len(spans)} spans: {cause}",
            hint="check that the process that serves the store is still running",
        )
