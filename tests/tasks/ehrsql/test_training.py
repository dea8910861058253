"""A run on EHRSQL fine-tunes on statements and refusals, and trains with rewards that may be below zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hospital import write_ehrsql_folder
from tests.support.processes import finish, lines, start


@pytest.mark.slow
def test_a_tiny_model_makes_a_step_with_rewards_below_zero(tmp_path: Path, tiny_model_folder: Path) -> None:
    process = start(
        ["--task=ehrsql", f"--data-dir={write_ehrsql_folder(tmp_path / 'data')}", f"--model={tiny_model_folder}",
         f"runs_dir={tmp_path / 'runs'}", f"local.cache_dir={tmp_path / 'cache'}", "run_name=r",
         "local.max_context=8192", "--n-runners=1", "sft.steps=2", "sft.batch=5", "agent.max_tokens=8", "train.steps=1",
         "train.questions_per_step=2", "train.group_size=2", "data.val_questions=2"],
    )  # fmt: skip
    output = finish(process)
    assert process.returncode == 0, output
    run = tmp_path / "runs" / "r"
    (step,) = lines(run / "metrics.jsonl")
    assert step["rollouts/kept"] == step["rollouts/enqueued"] == 4
    assert step["reward/mean"] == step["reward/judge"] < 0, "nonsense costs"
    assert len(lines(run / "sft.jsonl")) == 2
    rewards = [line["record"]["reward"]["judge"] for line in lines(run / "rollouts.jsonl")]
    assert set(rewards) <= {-0.5, 0.0, 1.0} and -0.5 in rewards
