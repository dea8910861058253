"""What the LLM proxy sends to the store: the token ids of each call, in batches."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from agentlightning.llm_proxy import LightningOpenTelemetry, LightningSpanExporter
from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

logger = logging.getLogger(__name__)

_CALL = "raw_gen_ai_request"
_KEPT = frozenset(
    f"llm.hosted_vllm.{name}"
    for name in ("id", "prompt_token_ids", "response_token_ids", "response_logprobs", "response_versions")
)
_CHOICES = "llm.hosted_vllm.choices"  # where vLLM itself puts the response ids
_WAIT_S = 0.03  # how long a batch waits for company: less than anyone notices, more than one call in a busy step
_RETRIES = 3


class CallTelemetry(LightningOpenTelemetry):  # type: ignore[misc]
    """litellm's callback that records calls, reduced to what a triplet is made of.

    As it comes, each call leaves half a dozen spans that repeat its whole conversation, posted one call at a time from
    the event loop that also serves the calls. Reading them back made the store the slowest part of a rollout.
    """

    def __init__(self) -> None:
        exporter = LightningSpanExporter()
        exporter._otlp_exporter = _CallSender()
        OpenTelemetry.__init__(self, config=OpenTelemetryConfig(exporter=exporter))


class _CallSender:
    """Stands in for agent-lightning's OTLP exporter: trims, queues, and sends from a thread of its own."""

    def __init__(self) -> None:
        self._endpoint = ""  # set by LightningSpanExporter before each export
        self._queue: queue.Queue[tuple[str, ReadableSpan]] = queue.Queue()
        self._thread: threading.Thread | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._thread is None:  # not in __init__: a thread would not survive the fork of the proxy
            self._thread = threading.Thread(target=self._send_for_ever, daemon=True, name="call-telemetry")
            self._thread.start()
        # A call that failed has no such span. The store must hear of it all the same: it numbered the call, and a
        # number that never arrives would pass for a lost span.
        for span in [s for s in spans if s.name == _CALL] or spans[-1:]:
            self._queue.put((self._endpoint, _trimmed(span)))
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to close; the thread ends with the process."""

    def _send_for_ever(self) -> None:
        exporter = OTLPSpanExporter()
        while True:
            batch = [self._queue.get()]
            time.sleep(_WAIT_S)
            while not self._queue.empty():
                batch.append(self._queue.get())
            for endpoint in {address for address, _ in batch}:
                self._send(exporter, endpoint, [span for address, span in batch if address == endpoint])

    @staticmethod
    def _send(exporter: Any, endpoint: str, spans: list[ReadableSpan]) -> None:
        exporter._endpoint = endpoint
        for attempt in range(_RETRIES):
            try:
                if exporter.export(spans) is SpanExportResult.SUCCESS:
                    return
            except Exception:  # whatever it was: the thread must live, and the rollouts are dropped as incomplete
                logger.exception("could not send %d calls to %s", len(spans), endpoint)
            time.sleep(0.2 * 2**attempt)
        logger.error("gave up sending %d calls to %s", len(spans), endpoint)


def _trimmed(span: ReadableSpan) -> ReadableSpan:
    attributes = span.attributes or {}
    kept = {key: value for key, value in attributes.items() if key in _KEPT}
    if "llm.hosted_vllm.response_token_ids" not in kept and _CHOICES in attributes:
        kept[_CHOICES] = attributes[_CHOICES]
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=kept,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
