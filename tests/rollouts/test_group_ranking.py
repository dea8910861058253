"""The answers of a group are ranked in one call, once all of them have come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sql_agent.reward import GroupJudge, Judge, JudgeCase, Verdict
from sql_agent.rollouts.group_ranking import GroupBarrier, rank_group
from sql_agent.rollouts.metrics import summary
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.schemas import Drop, DropCause, Outcome, RewardParts, RolloutRecord
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.judge_server import Server, serving
from tests.support.paracetamol import CALL, QUESTION, judge


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def rollout(
    answer: str, number: int, *, group: str = "g", score: float = 0.5, lost: Drop | None = None
) -> FinishedRollout:
    reward = None if lost else RewardParts(rule=0.1, judge=score, judge_name="ranking", criteria={"facts": score})
    record = RolloutRecord(
        question=QUESTION, answer=answer, outcome=Outcome.ANSWERED, calls=(CALL,), turns=2, reward=reward, dropped=lost
    )
    return FinishedRollout(f"r{number}", group, record, reward.total if reward else None, (), (), lost)


def reward_of(result: FinishedRollout) -> RewardParts:
    assert result.record is not None
    assert result.record.reward is not None
    return result.record.reward


def ranking(**scores: float) -> str:
    places = [{"answer": int(k[1:]), "reason": "so", "score": v} for k, v in scores.items()]
    return json.dumps({"ranking": places})


@pytest.fixture(autouse=True)
def _two_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.reward.judges.endpoint.ATTEMPTS", 2)


def ranking_judge(server: Server) -> GroupJudge:
    made = judge(server, name="ranking")
    assert isinstance(made, GroupJudge)
    return made


def shown(server: Server) -> list[str]:
    """The answers in the prompt, in its order."""
    parts = server.prompt.split("> answer ") if "> answer " in server.prompt else server.prompt.split(" answer ")
    blocks = [part for part in parts[1:] if part[:1].isdigit()]
    return [block.split("\n")[1] for block in blocks if block.split("\n")[1] in {"pain", "fever", "both"}]


async def test_a_group_is_ranked_in_one_call_and_equal_answers_earn_the_same(server: Server) -> None:
    judge = ranking_judge(server)
    rollouts = [rollout("pain", 0), rollout("fever", 1, score=0.3), rollout("pain", 2), rollout("", 3, score=0.0)]
    server.default = ranking(a1=0.25, a2=0.75)
    ranked = await rank_group(judge, rollouts)
    assert len(server.requests) == 1
    order = shown(server)
    assert sorted(order) == ["fever", "pain"], "the empty answer is not shown, and equal ones once"
    expected = dict(zip(order, (0.25, 0.75), strict=True)) | {"": 0.0}
    for result in ranked:
        assert result.record is not None
        score = expected[result.record.answer]
        assert result.reward == pytest.approx(0.1 + score)
        assert reward_of(result).judge == pytest.approx(score)
    assert reward_of(ranked[1]).criteria == {"facts": 0.3, "absolute": 0.3}
    values = summary(ranked, enqueued=4, task=TASK)
    assert values["judge/requests"] == 1
    assert values["judge/absolute"] == pytest.approx((0.5 + 0.3 + 0.5 + 0.0) / 4)
    assert values["accurate"] == 0.0, "accuracy goes by the absolute score"
    assert values["groups/informative"] == 1.0


async def test_groups_are_ranked_by_themselves(server: Server) -> None:
    server.default = ranking(a1=0.0, a2=1.0)
    rollouts = [rollout("pain", 0), rollout("pain", 1, group="h"), rollout("fever", 2), rollout("fever", 3, group="h")]
    barrier = GroupBarrier(ranking_judge(server), size=2)
    ranked = await asyncio.gather(*(barrier.add(one) for one in rollouts))
    assert len(server.requests) == 2
    assert [r.rollout_id for r in ranked] == ["r0", "r1", "r2", "r3"]
    assert {round(r.reward or 0, 2) for r in ranked if r.group == "g"} == {0.1, 1.1}


async def test_where_all_answer_alike_nothing_is_asked(server: Server) -> None:
    ranked = await rank_group(ranking_judge(server), [rollout("pain", 0), rollout("pain", 1)])
    assert server.requests == []
    assert [r.reward for r in ranked] == pytest.approx([0.6, 0.6])
    assert summary(ranked, enqueued=2, task=TASK)["groups/informative"] == 0.0


@pytest.mark.parametrize("reply", [ranking(a1=0.5), ranking(a1=0.5, a3=0.5), ranking(a1=0.5, a2=1.5), "no", 500])
async def test_half_a_ranking_drops_the_group_and_never_scores_it(server: Server, reply: Any) -> None:
    server.default = reply
    server.script = [reply, reply]
    lost = rollout("both", 2, lost=Drop(cause=DropCause.ATTEMPT))
    ranked = await rank_group(ranking_judge(server), [rollout("pain", 0), rollout("fever", 1), lost])
    assert [r.dropped and r.dropped.cause for r in ranked] == [DropCause.JUDGE, DropCause.JUDGE, DropCause.ATTEMPT]
    assert summary(ranked, enqueued=3, task=TASK)["judge/requests"] == 2


async def test_a_group_waits_until_all_have_come_or_left_and_again_when_the_ranking_failed(server: Server) -> None:
    server.script = ["no", "no"]
    server.default = ranking(a1=0.2, a2=0.9)
    barrier = GroupBarrier(ranking_judge(server), size=3)
    first = asyncio.create_task(barrier.add(rollout("pain", 0)))
    second = asyncio.create_task(barrier.add(rollout("fever", 1)))
    await asyncio.sleep(0.1)
    assert not first.done()
    assert not second.done()
    barrier.leave("g")
    failed = await asyncio.gather(first, second)
    assert [r.dropped and r.dropped.cause for r in failed] == [DropCause.JUDGE, DropCause.JUDGE]
    again = asyncio.gather(*(barrier.add(rollout(answer, n)) for n, answer in enumerate(("pain", "fever"), start=3)))
    scores = sorted(round(r.reward or 0, 2) for r in await asyncio.wait_for(again, timeout=10))
    assert scores == [0.3, 1.0]


class SlowJudge:
    """Ranks after 0.05 s; raises `error` if it has one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.name = self.identity = "slow"
        self.vouched_by: dict[str, Judge] = {}
        self.error = error

    async def grade(self, case: JudgeCase) -> Verdict:
        raise NotImplementedError

    async def rank(self, cases: Sequence[JudgeCase], own: Sequence[Verdict]) -> list[Verdict]:
        await asyncio.sleep(0.05)
        if self.error is not None:
            raise self.error
        return list(own)


async def test_what_a_judge_raises_ends_the_wait_of_all() -> None:
    barrier = GroupBarrier(SlowJudge(ZeroDivisionError("a fault of the judge")), size=2)
    added = asyncio.gather(*(barrier.add(rollout("pain", n)) for n in range(2)), return_exceptions=True)
    assert [type(error) for error in await asyncio.wait_for(added, timeout=10)] == [ZeroDivisionError] * 2


@pytest.mark.parametrize("wait_s", [0.0, 0.02], ids=["while it waits for the others", "while the group is ranked"])
async def test_a_cancelled_rollout_keeps_no_other_waiting(wait_s: float) -> None:
    barrier = GroupBarrier(SlowJudge(), size=2)
    first, second = (asyncio.create_task(barrier.add(rollout("pain", n))) for n in range(2))
    if not wait_s:
        second.cancel()
    await asyncio.sleep(wait_s)
    second.cancel()
    barrier.leave("g")
    kept, cancelled = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), timeout=10)
    assert isinstance(kept, FinishedRollout) and kept.reward == pytest.approx(0.6)
    assert isinstance(cancelled, asyncio.CancelledError)
