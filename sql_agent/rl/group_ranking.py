"""Grade the rollouts of a group against each other, once all of them have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sql_agent.errors import JudgeError
from sql_agent.reward import GroupJudge, JudgeCase, Verdict
from sql_agent.reward.hybrid import reward_parts
from sql_agent.rl.rollouts import FinishedRollout
from sql_agent.schemas import Drop, DropCause, RewardParts, RolloutRecord, Usage


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


class GroupBarrier:
    """Collects the rollouts of each group as they end, and ranks them when all `size` have ended or were abandoned."""

    def __init__(self, judge: GroupJudge, size: int) -> None:
        self._judge = judge
        self._size = size
        self._groups: dict[str, tuple[list[FinishedRollout | None], asyncio.Future[dict[str, FinishedRollout]]]] = {}

    async def add(self, rollout: FinishedRollout) -> FinishedRollout:
        """Wait until the group of `rollout` is complete, and return `rollout` with its reward from the ranking."""
        ranking = await self._count(rollout.group, rollout)
        return (await asyncio.shield(ranking))[rollout.rollout_id]

    async def abandon(self, group: str) -> None:
        """Count one rollout of `group` as lost, so that the others do not wait for it."""
        await self._count(group, None)

    async def _count(self, group: str, rollout: FinishedRollout | None) -> asyncio.Future[dict[str, FinishedRollout]]:
        """Add one ended rollout to `group`, rank the group if it was the last, and return the future ranking."""
        if group not in self._groups:
            self._groups[group] = [], asyncio.get_running_loop().create_future()
        members, ranking = self._groups[group]
        members.append(rollout)
        if len(members) == self._size:
            del self._groups[group]
            ranked = await rank_group(self._judge, [member for member in members if member is not None])
            ranking.set_result({member.rollout_id: member for member in ranked})
        return ranking


def _dropped(record: RolloutRecord, drop: Drop, usage: Usage) -> RolloutRecord:
    return record.model_copy(update={"reward": None, "dropped": drop, "judge_usage": record.judge_usage + usage})


def _with_reward(rollout: FinishedRollout, record: RolloutRecord, parts: RewardParts, usage: Usage) -> FinishedRollout:
    changed = record.model_copy(update={"reward": parts, "judge_usage": record.judge_usage + usage})
    return replace(rollout, record=changed, reward=parts.total)
