"""An update that cannot be finished does not ruin the policy, nor a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
import torch

from sql_agent.config.settings import load_settings
from sql_agent.errors import TrainingError
from sql_agent.rollouts.trajectory import FinishedRollout, TokenSequence
from sql_agent.runs.checkpoints import last_checkpoint
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.system.servers import bearer
from sql_agent.training.local.trainer import PolicyTrainer
from sql_agent.training.policy.model import load_policy
from sql_agent.training.serving.server import ServerThread


@pytest.mark.parametrize(("minibatches", "saved"), [(1, ["step-000001"]), (2, [])])
def test_a_gradient_that_is_not_finite_ends_the_run_and_no_weights_between_two_steps_are_saved(
    minibatches: int, saved: list[str], tiny_model_folder: Path, tmp_path: Path
) -> None:
    settings = load_settings([f"train.minibatches={minibatches}", "train.kl_coef=0"])
    policy = load_policy(str(tiny_model_folder), cache_dir=tmp_path)
    trainer = PolicyTrainer(settings, RunLog(tmp_path / "run"), policy, ServerThread.with_key(), bf16=False)
    sequence = TokenSequence((1, 2, 3), (4, 5), (1, 1))
    rollouts = [FinishedRollout(name, name, None, 1.0, (), (sequence,), None) for name in ("a", "b")]
    try:
        trainer.update(rollouts, {"a": 0.1, "b": -0.1})
        with pytest.raises(TrainingError, match="the gradient of step 2 is not finite"):
            trainer.update(rollouts, {"a": 0.1, "b": float("inf")})
        trainer.save()
    finally:
        trainer.close()
    assert all(weights.isfinite().all() for weights in policy.model.parameters())
    assert [folder.name for folder in (tmp_path / "run").glob("checkpoints/*")] == saved


def test_a_cheap_update_leaves_the_lower_layers_and_its_first_steps_are_smaller(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    settings = load_settings(["local.cheap_update=true", "train.lr=3e-3"])
    policy = load_policy(str(tiny_model_folder), cache_dir=tmp_path)
    before = {name: weights.clone() for name, weights in policy.model.state_dict().items()}
    trainer = PolicyTrainer(settings, RunLog(tmp_path / "run"), policy, ServerThread.with_key(), bf16=False)
    sequence = TokenSequence((1, 2, 3), (4, 5), (1, 1))
    try:
        trainer.update([FinishedRollout("a", "a", None, 1.0, (), (sequence,), None)], {"a": 1.0})
    finally:
        trainer.close()
    moved = {name: (weights - before[name]).abs().max().item() for name, weights in policy.model.state_dict().items()}
    assert {name for name, by in moved.items() if by} == {
        name for name in moved if name.startswith("model.layers.1.") or name in {"model.norm.weight"}
    }
    assert max(moved.values()) == pytest.approx(1e-3, rel=0.01)  # AdamW's first step moves every weight by the rate


@pytest.mark.parametrize("rank", [0, 2])
def test_the_untrained_model_is_served_for_a_while_and_then_the_trained_one_again(
    rank: int, tiny_model_folder: Path, tmp_path: Path
) -> None:
    settings = load_settings([f"model={tiny_model_folder}", f"verl.lora_rank={rank}"])
    policy = load_policy(str(tiny_model_folder), cache_dir=tmp_path)
    with torch.no_grad():
        policy.model.model.norm.weight.neg_()  # the least probable token is now the most probable one
    trainer = PolicyTrainer(settings, RunLog(tmp_path / "run"), policy, ServerThread.with_key(), bf16=False)

    def said() -> str:
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
        service = trainer._service
        reply = httpx.post(f"{service.base_url}/chat/completions", json=body, headers=bearer(service.api_key))
        return str(reply.json()["choices"])

    try:
        trained = said()
        with trainer.untrained():
            assert said() != trained
        assert said() == trained
    finally:
        trainer.close()


def rollout(name: str) -> FinishedRollout:
    return FinishedRollout(name, name, None, 1.0, (), (TokenSequence((1, 2, 3), (4, 5), (1, 1)),), None)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_resumed_run_goes_on_as_one_that_was_not_stopped_and_with_lora_only_adapters_move(
    rank: int, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also on a CPU on which bf16 is faster, both runs compute in fp32.
    monkeypatch.setattr("sql_agent.training.local.trainer.prepare_torch", lambda: False)
    settings = load_settings(
        [f"model={tiny_model_folder}", f"verl.lora_rank={rank}", "train.lr=1e-2", "train.kl_coef=0.1"]
    )
    log = RunLog(tmp_path / "run")
    base = load_policy(str(tiny_model_folder), cache_dir=tmp_path).model.state_dict()
    trainer = PolicyTrainer(
        settings, log, load_policy(str(tiny_model_folder), cache_dir=tmp_path), ServerThread.with_key(), bf16=False
    )
    learned: list[dict[str, torch.Tensor]] = []
    try:
        for _ in range(2):
            trainer.update([rollout("a")], {"a": 1.0})
            trainer.save()
            learned.append(load_policy(str(last_checkpoint(log.folder)), cache_dir=tmp_path).model.state_dict())
    finally:
        trainer.close()
    for name, weights in base.items():
        assert torch.equal(weights, learned[0][name]) == (rank > 0 and "_proj" not in name), name
    kept = load_policy(str(log.folder / "checkpoints" / "base"), cache_dir=tmp_path).model.state_dict()
    assert all(torch.equal(weights, kept[name]) for name, weights in base.items()), (
        "the frozen weights are as they were"
    )
    saved = torch.load(log.folder / "checkpoints" / "step-000002" / "optimizer.pt", weights_only=True)["state"]
    assert rank == 0 or {min(state["exp_avg"].shape) for state in saved.values()} == {rank}, "adapters only"

    shutil.rmtree(log.folder / "checkpoints" / "step-000002")
    resumed = PolicyTrainer.resume(settings, log, Ui(), ServerThread.with_key())
    try:
        assert resumed.step == 1
        resumed.update([rollout("a")], {"a": 1.0})
        resumed.save()
    finally:
        resumed.close()
    again = load_policy(str(last_checkpoint(log.folder)), cache_dir=tmp_path).model.state_dict()
    assert all(torch.equal(weights, learned[1][name]) for name, weights in again.items())
