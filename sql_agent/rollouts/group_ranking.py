"""Let the judge rank the rollouts of a group, once all rollouts of the group have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sql_agent.errors import JudgeError
from sql_agent.reward import GroupJudge, JudgeCase, Verdict, reward_parts
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.schemas import Drop, DropCause, Usage


async def rank_group(judge: GroupJudge, rollouts: Sequence[FinishedRollout]) -> list[FinishedRollout]:
    """Return the `rollouts` of one group, in order, with rewards (0.0–1.1) from the ranking by `judge`.

    A rollout that was dropped before is returned unchanged. If the judge fails, all rollouts of the group are dropped
    with the judge's error as the reason, because rewards of a partial ranking cannot be compared.
    """
    kept = [r for r in rollouts if r.dropped is None]
    records = [r.record for r in kept if r.record is not None]
    rewards = [record.reward for record in records if record.reward is not None]
    if not kept:
        return list(rollouts)
    cases = [
        JudgeCase(question=r.question, answer=r.answer, calls=r.calls, evidence_read=r.evidence_read) for r in records
    ]
    own = [Verdict(score=r.judge, criteria=r.criteria, reason=r.reason) for r in rewards]
    changed: dict[str, FinishedRollout] = {}
    try:
        verdicts = await judge.rank(cases, own)
    except JudgeError as error:
        drop = Drop(cause=DropCause.JUDGE, detail=error.message)
        usage = error.usage or Usage()
        for rollout, record in zip(kept, records, strict=True):
            fields = {"reward": None, "dropped": drop, "judge_usage": record.judge_usage + usage}
            changed[rollout.rollout_id] = replace(rollout, dropped=drop, record=record.model_copy(update=fields))
            usage = Usage()  # the first record has the usage of the whole group
    else:
        for rollout, record, before, verdict in zip(kept, records, rewards, verdicts, strict=True):
            parts = reward_parts(before.rule, verdict, judge.name)
            ranked = record.model_copy(update={"reward": parts, "judge_usage": record.judge_usage + verdict.usage})
            changed[rollout.rollout_id] = replace(rollout, record=ranked, reward=parts.total)
    return [changed.get(r.rollout_id, r) for r in rollouts]


_Waiting = tuple[FinishedRollout, "asyncio.Future[FinishedRollout]"]


@dataclass
class _Group:
    """The number of callers that still run a rollout of the group, and the rollouts (by id) that wait for a ranking."""

    members: int
    waiting: dict[str, _Waiting] = field(default_factory=dict)


class GroupBarrier:
    """Collects the ended rollouts of each group, and ranks a group when every member has added a rollout.

    A member is a caller that runs one rollout of the group; at first a group has `size` members. A member calls `add`
    with its rollout, or again with another rollout if the ranking failed, and calls `leave` at the end.
    """

    def __init__(self, judge: GroupJudge, size: int) -> None:
        self._judge = judge
        self._size = size
        self._groups: dict[str, _Group] = {}
        self._rankings: set[asyncio.Task[None]] = set()

    async def add(self, rollout: FinishedRollout) -> FinishedRollout:
        """Wait until the group of `rollout` is ranked, and return `rollout` with its reward from the ranking.

        An error of `rank_group` is raised in all calls that wait for the ranking.
        """
        group = self._groups.setdefault(rollout.group, _Group(self._size))
        ranked: asyncio.Future[FinishedRollout] = asyncio.get_running_loop().create_future()
        group.waiting[rollout.rollout_id] = rollout, ranked
        self._rank_if_complete(group)
        try:
            return await ranked
        finally:
            group.waiting.pop(rollout.rollout_id, None)  # still there if this request was cancelled

    def leave(self, name: str) -> None:
        """Remove one member from the group `name`, so that the other members do not wait for its rollout."""
        group = self._groups.setdefault(name, _Group(self._size))
        group.members -= 1
        if group.members:
            self._rank_if_complete(group)
        else:
            del self._groups[name]

    def _rank_if_complete(self, group: _Group) -> None:
        if len(group.waiting) == group.members:
            complete, group.waiting = list(group.waiting.values()), {}
            # A task goes on if the request that completed the group is cancelled.
            ranking = asyncio.create_task(self._rank(complete))
            self._rankings.add(ranking)
            ranking.add_done_callback(self._rankings.discard)

    async def _rank(self, waiting: list[_Waiting]) -> None:
        try:
            rollouts = await rank_group(self._judge, [rollout for rollout, _ in waiting])
        except BaseException as error:  # raised in every waiting request
            for _, ranked in waiting:
                if not ranked.done():
                    ranked.set_exception(error)
            return
        for rollout, (_, ranked) in zip(rollouts, waiting, strict=True):
            if not ranked.done():
                ranked.set_result(rollout)
