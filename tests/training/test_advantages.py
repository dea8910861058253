"""An advantage says how much better a rollout is than its group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.reward.rule_reward import FULL_REWARD, RULE_REWARD
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.schemas import Drop, DropCause, RewardParts
from sql_agent.training.advantages import extreme_advantages, group_advantages


def rollout(name: str, group: str, reward: float | None, dropped: Drop | None = None) -> FinishedRollout:
    return FinishedRollout(name, group, None, reward, (), (), dropped)


def advantages_of(rewards: list[float]) -> list[float]:
    return list(group_advantages(rollout(str(i), "q", reward) for i, reward in enumerate(rewards)).values())


@given(st.lists(st.floats(0, 1.1), min_size=2, max_size=16))
def test_advantages_of_a_group_sum_to_zero_and_keep_its_order(rewards: list[float]) -> None:
    advantages = advantages_of(rewards)
    assert sum(advantages) == pytest.approx(0.0, abs=1e-6)
    assert [a for _, a in sorted(zip(rewards, advantages, strict=True))] == sorted(advantages)


def test_a_group_that_agrees_teaches_nothing() -> None:
    assert advantages_of([0.7, 0.7, 0.7]) == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)


def test_advantages_compare_within_a_group_and_leave_out_what_was_dropped() -> None:
    result = group_advantages(
        [
            rollout("a", "g", 1.0),
            rollout("b", "g", 0.0),
            rollout("c", "g", None, Drop(cause=DropCause.JUDGE)),
            rollout("d", "h", 0.4),
        ]
    )
    assert result["a"] == pytest.approx(0.7071, abs=1e-3)
    assert result["b"] == -result["a"]
    assert result["d"] == 0.0
    assert "c" not in result


def test_of_a_large_group_the_best_and_the_worst_are_trained_by_how_far_apart_they_are() -> None:
    right = [rollout(str(i), "q", reward) for i, reward in enumerate([0.1, 1.1, 0.0, 0.1, 1.1, 0.1])]
    queried = [rollout(f"{i}-other", "r", reward) for i, reward in enumerate([0.0, 0.1, 0.1])]
    result = extreme_advantages([*right, *queried], 2)
    trained = {name: advantage for name, advantage in result.items() if advantage}
    assert len(result) == 9
    assert trained == pytest.approx({"2": -0.5, "4": 0.5, "0-other": -0.05 / 1.1, "2-other": 0.05 / 1.1})


def test_a_right_answer_after_a_query_and_a_wrong_one_without_a_query_are_a_whole_advantage_apart() -> None:
    full = RewardParts(rule=RULE_REWARD, judge=1.0, judge_name="facts").total
    result = extreme_advantages([rollout("right", "q", full), rollout("wrong", "q", 0.0)], 2)
    assert full == FULL_REWARD
    assert result["right"] - result["wrong"] == pytest.approx(1.0)
