"""An update that cannot be finished does not ruin the policy, nor a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sql_agent.config.settings import load_settings
from sql_agent.errors import TrainingError
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.runs.run_log import RunLog
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


def test_the_untrained_model_is_served_for_a_while_and_then_the_trained_one_again(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    settings = load_settings([f"model={tiny_model_folder}"])
    policy = load_policy(str(tiny_model_folder), cache_dir=tmp_path)
    name, weights = next(iter(policy.model.named_parameters()))
    with torch.no_grad():
        weights += 1.0
    trainer = PolicyTrainer(settings, RunLog(tmp_path / "run"), policy, ServerThread.with_key(), bf16=False)
    trained = weights.clone()
    try:
        with trainer.untrained():
            assert torch.allclose(policy.model.get_parameter(name), trained - 1.0, atol=1e-5)
        assert torch.equal(policy.model.get_parameter(name), trained)
    finally:
        trainer.close()
