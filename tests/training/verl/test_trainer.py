"""What of a step verl's update sees: the groups whose rewards differ, in as many rollouts as its workers can share."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.training.verl.interprocess import START_VARIABLE
from sql_agent.training.verl.trainer import SkipsZeroAdvantage, places_to_train
from tests.support.processes import lines

_GROUPS = st.lists(st.lists(st.sampled_from([0.0, 0.1, 1.1]), min_size=1, max_size=4), min_size=1, max_size=12)


@given(_GROUPS, st.integers(1, 8))
def test_every_rollout_with_an_advantage_is_trained_and_as_few_others_as_the_update_can_take(
    groups: list[list[float]], multiple: int
) -> None:
    named = [(str(number), reward) for number, group in enumerate(groups) for reward in group]
    places = places_to_train([name for name, _ in named], [reward for _, reward in named], multiple)
    needed = {place for place, (name, _) in enumerate(named) if len(set(groups[int(name)])) > 1}
    assert places == sorted(set(places))
    assert needed <= set(places)
    assert len(places) - len(needed) < multiple or len(places) == len(named)
    assert len(places) % multiple == 0 or len(places) == len(named)


@dataclass
class _Batch:
    keys: list[str]
    partition_id: str = "train"

    def __len__(self) -> int:
        return len(self.keys)

    def select_keys(self, keys: list[str]) -> _Batch:
        return _Batch(keys)


@dataclass
class _Trainer:
    """Records what it would train on, in minibatches of the size that its configuration has at that time."""

    config: Any
    actor_rollout_wg: Any
    updates: list[tuple[list[str], int]] = field(default_factory=list)

    def _balance_batch(self, batch: _Batch, metrics: dict[str, Any]) -> _Batch:
        assert len(batch) % (self.config.actor_rollout_ref.actor.ppo_mini_batch_size * 2) == 0
        return batch

    def _update_actor(self, batch: _Batch, metrics: dict[str, Any]) -> _Batch:
        self.updates.append((batch.keys, self.config.actor_rollout_ref.actor.ppo_mini_batch_size))
        metrics["actor/grad_norm"] = 2.0
        return batch


class _Config(SimpleNamespace):
    def get(self, name: str, default: Any) -> Any:
        return getattr(self, name, default)


class _TrainerOfOurs(SkipsZeroAdvantage, _Trainer):
    pass


def _step(
    monkeypatch: pytest.MonkeyPatch, rewards: list[float], *, kl: bool = False
) -> tuple[list[tuple[list[str], int]], dict[str, Any]]:
    """Do one update of four groups of two rollouts."""
    batch = _Batch([f"rollout-{number}" for number in range(len(rewards))])

    def stored(keys: list[str], **_: Any) -> Any:
        places = [batch.keys.index(key) for key in keys]
        uids = SimpleNamespace(tolist=lambda: [str(place // 2) for place in places])
        scores = SimpleNamespace(unbind=lambda: [SimpleNamespace(sum=lambda p=p: rewards[p]) for p in places])
        return {"uid": uids, "rm_scores": scores}

    queue = ModuleType("transfer_queue")
    monkeypatch.setattr(queue, "kv_batch_get", stored, raising=False)
    monkeypatch.setitem(sys.modules, "transfer_queue", queue)
    actor = SimpleNamespace(ppo_mini_batch_size=4, use_kl_loss=kl)
    config = _Config(
        actor_rollout_ref=SimpleNamespace(actor=actor, rollout=SimpleNamespace(n=2)),
        algorithm=SimpleNamespace(adv_estimator="grpo", use_kl_in_reward=False),
    )
    trainer = _TrainerOfOurs(config, SimpleNamespace(world_size=2))
    metrics: dict[str, Any] = {}
    assert trainer._update_actor(batch, metrics) is batch
    assert actor.ppo_mini_batch_size == 4
    return trainer.updates, metrics


def test_groups_of_equal_rewards_are_left_out_of_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    updates, _ = _step(monkeypatch, [1.1, 1.1, 0.0, 1.1, 0.1, 0.1, 1.1, 0.1])
    assert updates == [(["rollout-2", "rollout-3", "rollout-6", "rollout-7"], 2)]


def test_a_step_in_which_no_rewards_differ_changes_nothing_and_reports_a_gradient_of_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updates, metrics = _step(monkeypatch, [0.1] * 8)
    assert updates == []
    assert metrics == {"actor/grad_norm": 0.0}


def test_with_a_kl_term_every_rollout_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    updates, _ = _step(monkeypatch, [1.1, 1.1, 0.0, 1.1, 0.1, 0.1, 1.1, 0.1], kl=True)
    assert [len(keys) for keys, _ in updates] == [8]


def test_the_trainer_says_when_the_parts_of_its_start_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(START_VARIABLE, str(tmp_path / "start.jsonl"))
    trainer: Any = type("Trainer", (SkipsZeroAdvantage, _Trainer), {})(None, None)
    trainer.reward_loop_manager, trainer.other, trainer.llm_server_manager = 1, 2, 3
    ended = lines(tmp_path / "start.jsonl")
    assert [line["part"] for line in ended] == ["actor", "vLLM"] and ended[0]["time"] <= ended[1]["time"]
    assert (trainer.reward_loop_manager, trainer.other, trainer.llm_server_manager) == (1, 2, 3)
