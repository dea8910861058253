"""Keep groups of rollouts whole: run lost rollouts again, and rank a group once all of its rollouts have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sql_agent.errors import JudgeError, TrainingError
from sql_agent.reward import GroupJudge, JudgeCase, Verdict
from sql_agent.reward.scoring import reward_parts
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.scheduler import RolloutRequest, RolloutScheduler
from sql_agent.schemas import Drop, DropCause, RewardParts, RolloutRecord, Usage


class RolloutLostError(TrainingError):
    """Every try of a question's rollout was lost for reasons that are not the model's."""


class RolloutObserver(Protocol):
    """Is called at the start and at the end of every try of a rollout, the lost ones included."""

    def enqueued(self, request: RolloutRequest) -> None:
        """Record that a try begins."""
        ...

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None:
        """Record how a try ended; `rollout.dropped` is the reason when it was lost."""
        ...


class RetryingScheduler:
    """Runs a rollout that was lost again, up to `retries` times.

    A rollout that was lost with its process does not count, because the supervisor limits how often a process dies.
    The model's own failures are not losses: they are scored like any other rollout. With a `barrier` the rollouts of a
    training group wait for each other and are ranked.
    """

    def __init__(
        self,
        scheduler: RolloutScheduler,
        *,
        retries: int,
        observer: RolloutObserver,
        barrier: GroupBarrier | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._retries = retries
        self._observer = observer
        self._barrier = barrier

    async def run(self, request: RolloutRequest) -> FinishedRollout:
        """Return a kept rollout for `request`. Raises RolloutLostError when every try was lost."""
        barrier = self._barrier if request.mode == "train" else None
        try:
            return await self._tries(request, barrier)
        finally:
            if barrier is not None:
                barrier.leave(request.group)

    async def _tries(self, request: RolloutRequest, barrier: GroupBarrier | None) -> FinishedRollout:
        reasons: list[str] = []
        while len(reasons) <= self._retries:
            self._observer.enqueued(request)
            rollout = await self._scheduler.run(request)
            if barrier is not None and rollout.dropped is None:
                rollout = await barrier.add(rollout)
            self._observer.finished(request, rollout)
            if rollout.dropped is None:
                return rollout
            if rollout.dropped.cause is not DropCause.PROCESS:
                reasons.append(str(rollout.dropped))
        raise RolloutLostError(
            f"every rollout of question {request.question.id} was lost ({len(reasons)} tries): {'; '.join(reasons)}"
        )


async def rank_group(judge: GroupJudge, rollouts: Sequence[FinishedRollout]) -> list[FinishedRollout]:
    """Return the rollouts of one group, in order, with the rewards (0.0–1.1) that `judge` gives them by comparison.

    Rollouts that were dropped already are returned unchanged. When the judge fails, all rollouts of the group are
    dropped with its reason, because a part of a ranking cannot be compared with the rest. Raises ValueError when a kept
    rollout has no record or no reward.
    """
    kept = [r for r in rollouts if r.dropped is None]
    records = [r.record for r in kept if r.record is not None]
    rewards = [record.reward for record in records if record.reward is not None]
    if not kept:
        return list(rollouts)
    if len(rewards) < len(kept):
        raise ValueError("a kept rollout has no record or no reward")
    cases = [
        JudgeCase(question=r.question, answer=r.answer, calls=r.calls, evidence_read=r.evidence_read) for r in records
    ]
    own = [Verdict(score=r.judge, criteria=r.criteria, reason=r.reason) for r in rewards]
    try:
        verdicts = await judge.rank(cases, own)
    except JudgeError as error:
        drop = Drop(cause=DropCause.JUDGE, detail=error.message)
        usages = [error.usage or Usage(), *[Usage()] * (len(kept) - 1)]
        dropped = {
            rollout.rollout_id: replace(rollout, dropped=drop, record=_dropped(record, drop, usage))
            for rollout, record, usage in zip(kept, records, usages, strict=True)
        }
        return [dropped.get(r.rollout_id, r) for r in rollouts]
    changed = {
        rollout.rollout_id: _with_reward(rollout, record, reward_parts(before.rule, verdict, judge.name), verdict.usage)
        for rollout, record, before, verdict in zip(kept, records, rewards, verdicts, strict=True)
    }
    return [changed.get(r.rollout_id, r) for r in rollouts]


@dataclass
class _Group:
    """The number of members that have not left a group, and the rollouts that wait for the next ranking."""

    members: int
    waiting: dict[str, tuple[FinishedRollout, asyncio.Future[FinishedRollout]]] = field(default_factory=dict)


class GroupBarrier:
    """Collects the rollouts of each group as they end, and ranks them when all that stay in the group have ended.

    A group has `size` members at first. Each of them adds its rollout, another one after a ranking that failed, and
    leaves the group once, when it adds no more.
    """

    def __init__(self, judge: GroupJudge, size: int) -> None:
        self._judge = judge
        self._size = size
        self._groups: dict[str, _Group] = {}
        self._rankings: set[asyncio.Task[None]] = set()

    async def add(self, rollout: FinishedRollout) -> FinishedRollout:
        """Wait until the group of `rollout` is complete, and return `rollout` with its reward from the ranking.

        Raises what `rank_group` raises, for each member of the group.
        """
        group = self._groups.setdefault(rollout.group, _Group(self._size))
        ranked: asyncio.Future[FinishedRollout] = asyncio.get_running_loop().create_future()
        group.waiting[rollout.rollout_id] = rollout, ranked
        self._rank_if_complete(group)
        try:
            return await ranked
        finally:
            group.waiting.pop(rollout.rollout_id, None)  # it is still there when this request was cancelled

    def leave(self, name: str) -> None:
        """Count one member less in the group `name`, so that the others do not wait for it."""
        group = self._groups.setdefault(name, _Group(self._size))
        group.members -= 1
        if group.members:
            self._rank_if_complete(group)
        else:
            del self._groups[name]

    def _rank_if_complete(self, group: _Group) -> None:
        if len(group.waiting) == group.members:
            complete, group.waiting = list(group.waiting.values()), {}
            # In a task, because the others wait for it also when the request that completed the group is cancelled.
            ranking = asyncio.create_task(self._rank(complete))
            self._rankings.add(ranking)
            ranking.add_done_callback(self._rankings.discard)

    async def _rank(self, waiting: list[tuple[FinishedRollout, asyncio.Future[FinishedRollout]]]) -> None:
        try:
            rollouts = await rank_group(self._judge, [rollout for rollout, _ in waiting])
        except BaseException as error:  # every waiting request gets it
            for _, ranked in waiting:
                if not ranked.done():
                    ranked.set_exception(error)
            return
        for rollout, (_, ranked) in zip(rollouts, waiting, strict=True):
            if not ranked.done():
                ranked.set_result(rollout)


def _dropped(record: RolloutRecord, drop: Drop, usage: Usage) -> RolloutRecord:
    return record.model_copy(update={"reward": None, "dropped": drop, "judge_usage": record.judge_usage + usage})


def _with_reward(rollout: FinishedRollout, record: RolloutRecord, parts: RewardParts, usage: Usage) -> FinishedRollout:
    changed = record.model_copy(update={"reward": parts, "judge_usage": record.judge_usage + usage})
    return replace(rollout, record=changed, reward=parts.total)
