"""`train --plan` says what a run needs, on any machine, and refuses what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.cli import train
from sql_agent.config.settings import load_settings
from sql_agent.errors import ConfigError, ModelError
from sql_agent.training.duration import estimate
from sql_agent.training.verl.config import defaults
from tests.support.model_shapes import make_config


def plan(*arguments: str) -> int:
    return train.main(["--plan", "--backend=verl", *arguments])


def test_memory_disk_and_time_are_printed_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sql_agent.cli.train_checks.free_disk", lambda _: 10**12)
    model = make_config(tmp_path / "1.5B", "1.5B")
    runs = tmp_path / "runs"
    assert plan(f"--model={model}", "--task=spider", "verl.gpu_memory_gb=80", f"runs_dir={runs}") == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in (
        "1.54 B parameters, all weights trained",
        "fine-tuning rollouts update AdamW's step",
        "gradients 6.2 6.2 6.2",
        "update needs 76.0 of 76.0 GB; passes of an update have at most 12556 tokens; vLLM gets 32.0 GB",
        "55.6 GB for checkpoints",
        "A step: 15.1 s (rollouts 7.3",
        "60 steps 15.1",
        "scaled from 1.5B on Spider",
    ):
        assert part in printed
    assert not runs.exists(), "nothing is trained"


def test_what_does_not_fit_is_refused_after_it_was_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sql_agent.cli.train_checks.free_disk", lambda _: 10**12)
    model = make_config(tmp_path / "1.5B", "1.5B")
    with pytest.raises(ConfigError, match="does not fit") as caught:
        plan(f"--model={model}", "verl.gpu_memory_gb=24")
    assert "--lora-rank" in str(caught.value.hint)
    assert "AdamW" in capsys.readouterr().out
    assert plan(f"--model={model}", "verl.gpu_memory_gb=24", "--lora-rank=32") == 0


def test_checkpoints_that_the_disk_cannot_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.cli.train_checks.free_disk", lambda _: 10**9)
    with pytest.raises(ConfigError, match="checkpoints of this run need"):
        plan(f"--model={make_config(tmp_path / '0.5B', '0.5B')}", "verl.gpu_memory_gb=80")


def test_a_model_that_is_not_here_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the sizes of .* are unknown"):
        plan(f"--model={tmp_path / 'none'}", "verl.gpu_memory_gb=80")


def test_the_laptop_s_recipe_takes_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--plan", "--ci", "--backend=local"]) == 0
    assert "In all: 11 minutes" in capsys.readouterr().out, "docs/results.md: 11.5 to 12.6"


@pytest.mark.parametrize(
    ("size", "parameters", "task", "change", "factor"),
    [
        (1, 1_543_714_304, "spider", "train.questions_per_step=128", 2.0),
        (2, 1_543_714_304, "spider", "verl.n_gpus=2", 1 / 1.464),
        (3, 494_032_768, "medical", "train.steps=100", 1.0),
    ],
)
def test_a_step_grows_with_its_rollouts_and_shrinks_with_gpus(
    size: int, parameters: int, task: str, change: str, factor: float
) -> None:
    before, after = (
        estimate(load_settings(["backend=verl", f"task={task}", *given], defaults=defaults(task)), parameters)
        for given in ([], [change])
    )
    assert after.update_s / before.update_s == pytest.approx(factor, rel=0.01)
    assert after.rollout_s / before.rollout_s == pytest.approx(factor, rel=0.01)
