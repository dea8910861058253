"""Write the spans of a rollout to the store, and build the finished rollout from its spans."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import agentlightning as agl
import aiohttp
import orjson  # three to ten times faster than json on lists of numbers
from agentlightning.semconv import AGL_OBJECT, LightningResourceAttributes, LightningSpanAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode

from sql_agent.errors import TrainingError
from sql_agent.rollouts.trajectory import FinishedRollout, Turn, merge_turns
from sql_agent.schemas import Drop, DropCause, Outcome, RolloutRecord
from sql_agent.system.servers import bearer

logger = logging.getLogger(__name__)

SEQUENCE_HEADER = "x-sequence-id"  # number of a model call within its rollout, from 1
PREFIX = "llm.hosted_vllm."  # prefix of attribute names in the span of a model call
ROLE_ATTRIBUTE = "sql_agent.role"
_PROMPT_IDS, _RESPONSE_IDS = f"{PREFIX}prompt_token_ids", f"{PREFIX}response_token_ids"
_EXTRAS = {name: f"{PREFIX}response_{name}" for name in ("logprobs", "versions", "forced")}
_RECORD = LightningSpanAttributes.OBJECT_JSON.value
_REWARD = f"{LightningSpanAttributes.REWARD.value}.0"  # the attribute prefix of agentlightning.emit_reward
_REWARD_NAME, _REWARD_VALUE = f"{_REWARD}.name", f"{_REWARD}.value"

_SPAN_DEADLINE_S = 10.0  # time limit for the last spans of an ended rollout to arrive
_SPAN_POLLS_S = (0.01, 0.16)  # first and longest pause between polls; each pause is twice the pause before
_MORE_CONTEXT = "leave it out, or raise local.max_context (with verl: verl.config.data.max_prompt_length)"
_RETRIES = 3
_BATCH_S = 0.02  # time to wait for more spans, to send all in one request
_TIMEOUT = aiohttp.ClientTimeout(total=30)


class SpanOwner(NamedTuple):
    """The rollout and the attempt of a span, and the number of the span, which counts from 1 in each rollout."""

    rollout_id: str
    attempt_id: str
    sequence_id: int


def record_span(record: RolloutRecord, owner: SpanOwner) -> ReadableSpan:
    """Return a span with a rollout's record and, unless the rollout is dropped, its reward."""
    attributes: dict[str, Any] = {_RECORD: record.model_dump_json()}
    if record.reward:
        attributes |= {_REWARD_NAME: "primary", _REWARD_VALUE: record.reward.total}
    return make_span(AGL_OBJECT, attributes, owner, time.time(), time.time())


class TokenIdAdapter(agl.LlmProxyTraceToTriplet):  # type: ignore[misc]
    """Turns spans into triplets as agent-lightning's adapter does, and adds what the model server sent.

    `response["logprobs"]` are the natural log-probabilities of the response ids. `response["versions"]` are the first
    and the last version (number of updates) of the weights that sampled the response. `response["forced"]` is the range
    (start, end) of the response ids that the server inserted without sampling. `metadata["role"]` is the role of the
    agent in a workflow with several roles.
    """

    def adapt(self, source: Sequence[Any], /) -> list[agl.Triplet]:
        """Return the triplets of a rollout's model calls, in order."""
        calls = {s.attributes[f"{PREFIX}id"]: s.attributes for s in source if f"{PREFIX}id" in (s.attributes or {})}
        triplets: list[agl.Triplet] = super().adapt(source)
        for triplet in triplets:
            attributes = calls.get(triplet.metadata["response_id"], {})
            if ROLE_ATTRIBUTE in attributes:
                triplet.metadata["role"] = attributes[ROLE_ATTRIBUTE]
            for name, key in _EXTRAS.items():
                if key in attributes:
                    triplet.response[name] = orjson.loads(attributes[key])
        return triplets

    def _maybe_reward_value(self, span: Any) -> float | None:
        # The base class builds a pydantic validator for each span.
        value = (span.attributes or {}).get(_REWARD_VALUE)
        return None if value is None else float(value)

    def _extract_tokens_from_raw(self, attrs: dict[str, Any]) -> tuple[list[int], list[int]]:
        # The base class checks each token id, which takes longer than parsing.
        try:
            return orjson.loads(attrs[_PROMPT_IDS]), orjson.loads(attrs[_RESPONSE_IDS])[0]
        except (KeyError, IndexError, TypeError, ValueError):  # the call failed, or another kind of server answered
            ids: tuple[list[int], list[int]] = super()._extract_tokens_from_raw(attrs)
            return ids

    def _literal_eval_maybe(self, v: Any) -> Any:
        # orjson parses lists of numbers about ten times faster than literal_eval.
        if isinstance(v, str):
            try:
                return orjson.loads(v)
            except ValueError:
                return super()._literal_eval_maybe(v)
        return v


async def complete_spans(store: agl.LightningStore, rollout_id: str) -> tuple[list[Any], int]:
    """Return a rollout's spans, sorted by sequence id, and the number of missing spans.

    The store is polled until all sequence ids from 1 to the highest are present, for at most 10 s, because
    a rollout can be marked as succeeded before its last span is stored.
    """
    deadline = time.monotonic() + _SPAN_DEADLINE_S
    pause_s, longest_s = _SPAN_POLLS_S
    while True:
        spans = sorted(await store.query_spans(rollout_id, "latest"), key=lambda s: s.sequence_id)
        missing = spans[-1].sequence_id - len({s.sequence_id for s in spans}) if spans else 1
        if not missing or time.monotonic() > deadline:
            return spans, missing
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)


def read_rollout(
    rollout: agl.Rollout, group: str, spans: Sequence[Any], missing: int, turns: Sequence[Turn]
) -> FinishedRollout:
    """Build the FinishedRollout of an ended rollout, dropped if it cannot be trained on.

    `spans` are sorted by sequence id, `missing` is the number of spans that never arrived, and `turns` are the model
    calls in `spans`.
    """
    found = next((span.attributes[_RECORD] for span in reversed(spans) if span.name == AGL_OBJECT), None)
    record = None if found is None else RolloutRecord.model_validate_json(found)
    return FinishedRollout(
        rollout_id=rollout.rollout_id,
        group=group,
        record=record,
        reward=record.reward.total if record and record.reward else None,
        turns=tuple(turns),
        sequences=tuple(merge_turns(turn for turn in turns if turn.is_trained)),
        dropped=_reason_to_drop(rollout.status, record, len(turns), missing),
    )


def _reason_to_drop(status: str, record: RolloutRecord | None, triplets: int, missing: int) -> Drop | None:
    if record is not None and record.dropped:
        return record.dropped
    if status != "succeeded":
        cause, detail = DropCause.ATTEMPT, f"it ended as {status}"
    elif missing:
        cause, detail = DropCause.SPANS, f"{missing} are missing"
    elif record is None or record.reward is None:
        cause, detail = DropCause.RECORD, ""
    elif record.outcome is Outcome.CONTEXT_OVERFLOW and not record.turns:
        cause, detail = DropCause.PROMPT, f"question {record.question.id}; {_MORE_CONTEXT}"
    elif triplets and triplets == record.turns:
        return None
    else:
        cause, detail = DropCause.TRIPLETS, f"{record.turns} turns, {triplets} triplets"
    return Drop(cause=cause, detail=detail)


def make_span(name: str, attributes: Mapping[str, Any], owner: SpanOwner, start: float, end: float) -> ReadableSpan:
    """Return the span of `owner` from `start` to `end` (Unix time)."""
    ids: dict[str, str | int] = {
        LightningResourceAttributes.ROLLOUT_ID.value: owner.rollout_id,
        LightningResourceAttributes.ATTEMPT_ID.value: owner.attempt_id,
        LightningResourceAttributes.SPAN_SEQUENCE_ID.value: owner.sequence_id,
    }
    return ReadableSpan(
        name=name,
        context=SpanContext(random.getrandbits(128), random.getrandbits(64), is_remote=False),
        resource=Resource(ids),  # Resource.create would inspect the machine each time
        attributes=dict(attributes),
        status=Status(StatusCode.OK),
        start_time=int(start * 1e9),
        end_time=int(end * 1e9),
    )


class SpanExporter:
    """Posts spans to the OTLP endpoint of a store in batches, on the running event loop."""

    def __init__(self) -> None:
        self._queue: list[tuple[Sequence[ReadableSpan], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    def send(self, endpoint: str, spans: Sequence[ReadableSpan], *, token: str | None = None) -> asyncio.Future[None]:
        """Queue `spans` for the OTLP `endpoint`, and return a future that is done when the store has the spans.

        Requests have the bearer `token`, unless None. The future raises TrainingError after three failed requests.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((spans, stored))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued(endpoint, token))
        return stored

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _send_queued(self, endpoint: str, token: str | None) -> None:
        while self._queue:
            await asyncio.sleep(_BATCH_S)
            batch, self._queue = self._queue, []
            error = await self._post(endpoint, token, [span for spans, _ in batch for span in spans])
            for _, stored in batch:
                if stored.done():
                    continue
                if error is None:
                    stored.set_result(None)
                else:
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
            except Exception as error:  # any error, such as uvloop's RuntimeError: the future raises it
                # Not a warning, because requests are repeated, and at the end of a run the store may stop first.
                logger.info("could not send %d spans to %s: %r", len(spans), endpoint, error)
                cause = f"{type(error).__name__}: {error}"
            await asyncio.sleep(0.2 * 2**attempt)
        return TrainingError(
            f"the store at {endpoint} did not accept {len(spans)} spans: {cause}",
            hint="check that the store is still running",
        )
