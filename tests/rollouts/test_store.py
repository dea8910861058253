"""A store keeps its size during a long run, and keeps what has not ended."""

from __future__ import annotations

import agentlightning as agl
import pytest

from sql_agent.rollouts import store as run_store
from sql_agent.rollouts.store import RunStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setattr(run_store, "_KEPT", 3)
    return RunStore()


def span_of(attempt: agl.AttemptedRollout, name: str) -> agl.Span:
    return agl.Span.from_attributes(
        attributes={},
        name=name,
        rollout_id=attempt.rollout_id,
        attempt_id=attempt.attempt.attempt_id,
        sequence_id=1,
    )


async def run_one(store: RunStore) -> agl.AttemptedRollout:
    await store.enqueue_rollout(input={"question": "?"})
    attempt = await store.dequeue_rollout(worker_id="w")
    assert attempt is not None
    await store.add_many_spans([span_of(attempt, "a call")])
    await store.update_attempt(attempt.rollout_id, attempt.attempt.attempt_id, status="succeeded")
    return attempt


def sizes(store: RunStore) -> dict[str, int]:
    """Return the length of each attribute of the store that has one."""
    tables = {name: getattr(store.collections, name)._items for name in ("rollouts", "attempts", "spans")}
    tables["span_sequence_ids"] = store.collections.span_sequence_ids._values
    own = {name: value for name, value in vars(store).items() if hasattr(value, "__len__")}
    return {name: len(value) for name, value in (tables | own).items()}


async def test_a_store_holds_as_much_after_twenty_rollouts_as_after_eight(store: RunStore) -> None:
    for _ in range(8):
        await run_one(store)
    after_eight = sizes(store)
    for _ in range(12):
        await run_one(store)
    assert sizes(store) == after_eight
    assert after_eight["rollouts"] == 3


async def test_the_rollouts_that_ended_last_can_still_be_queried_and_take_late_spans(store: RunStore) -> None:
    attempts = [await run_one(store) for _ in range(5)]
    assert [r.rollout_id for r in await store.query_rollouts()] == [a.rollout_id for a in attempts[-3:]]
    await store.add_many_spans([span_of(attempts[-1], "late")])
    assert [s.name for s in await store.query_spans(attempts[-1].rollout_id)] == ["a call", "late"]


async def test_a_span_of_a_deleted_rollout_does_not_lose_the_spans_sent_with_it(store: RunStore) -> None:
    deleted, *_, kept = [await run_one(store) for _ in range(5)]
    await store.add_many_spans([span_of(deleted, "too late"), span_of(kept, "in time")])
    assert "in time" in [s.name for s in await store.query_spans(kept.rollout_id)]
    assert not await store.query_spans(deleted.rollout_id)


async def test_a_rollout_that_has_not_ended_is_never_deleted(store: RunStore) -> None:
    unended = await store.enqueue_rollout(input={"question": "?"})
    await store.dequeue_rollout(worker_id="w")
    for _ in range(10):
        await run_one(store)
    assert await store.get_rollout_by_id(unended.rollout_id) is not None
