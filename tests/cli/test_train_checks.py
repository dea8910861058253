"""What a run lacks is said before it starts, with what would make it need less; `train --plan` says what it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sql_agent.cli import train, train_checks
from sql_agent.cli.model_choice import count_parameters
from sql_agent.cli.train_checks import check_settings
from sql_agent.config.settings import load_settings
from sql_agent.errors import ConfigError, ModelError
from sql_agent.training.duration import estimate
from sql_agent.training.policy.model_config import context_of
from sql_agent.training.verl.config import defaults, verl_options
from tests.support.model_shapes import make_config


def test_a_model_s_parameters_are_counted_without_loading_it(tiny_model_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model_folder)
    assert count_parameters(str(tiny_model_folder)) == sum(p.numel() for p in model.parameters())
    assert count_parameters("Qwen/Qwen2.5-0.5B-Instruct") is None
    check_settings(load_settings([f"model={tiny_model_folder}"]))


@pytest.mark.parametrize(
    ("measure", "left", "message"),
    [
        ("free_disk", 10, "MB, and 0.0 MB are free"),
        ("available_memory", 10, "GB of memory"),
        ("raise_open_files", 10, "open files, and this process may open 10"),
        ("gpu_names", ["H200"], "this host has 1: H200"),
    ],
)
def test_what_is_short_is_named(
    monkeypatch: pytest.MonkeyPatch, tiny_model_folder: Path, measure: str, left: object, message: str
) -> None:
    monkeypatch.setattr(train_checks, measure, lambda *_: left)
    backend = "verl" if measure == "gpu_names" else "local"
    settings = load_settings([f"model={tiny_model_folder}", f"backend={backend}", "verl.n_gpus=2"])
    with pytest.raises(ConfigError, match=message) as caught:
        check_settings(settings)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({}, None),
    ],
)
def test_no_rollout_is_planned_longer_than_the_model_s_context(
    config: dict[str, Any], context: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert context_of(str(tmp_path)) == context
    assert context_of("Nobody/has-this") is None


def test_a_context_longer_than_the_model_s_is_refused_and_verl_s_is_shortened(tiny_model_folder: Path) -> None:
    settings = load_settings(
        [
            f"model={tiny_model_folder}",
            "local.max_context=9999",
            "verl.gpu_memory_gb=24",
            "verl.config.data.max_prompt_length=4096",
        ]
    )
    with pytest.raises(ConfigError, match=r"the context of .*, 8192 tokens"):
        check_settings(settings)
    options = verl_options(settings, run=tiny_model_folder, rollout_server="", resume=False)
    assert options["actor_rollout_ref"]["rollout"]["max_model_len"] == 8192


@pytest.mark.parametrize("place", ["/proc/x", "/proc", "/sys/x", "/dev/null/x"])
def test_a_place_that_cannot_be_written_to_is_said_to_be_rather_than_full(tiny_model_folder: Path, place: str) -> None:
    for setting in ("runs_dir", "local.cache_dir"):
        settings = load_settings([f"model={tiny_model_folder}", f"{setting}={place}"])
        with pytest.raises(ConfigError, match=f"cannot write to {setting}={place}: ") as caught:
            check_settings(settings)
        assert "are free" not in caught.value.message and f"{setting}=FOLDER" in str(caught.value.hint)


def test_a_folder_that_holds_no_model_is_refused_with_what_it_lacks(tmp_path: Path, tiny_model_folder: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for model, message in {
        str(tmp_path): "weights, a tokenizer missing",
        str(tmp_path / "nowhere"): "no model folder",
        "./here": "no model folder",
    }.items():
        with pytest.raises(ModelError, match=message):
            check_settings(load_settings([f"model={model}"]))
    cut = tmp_path / "cut"
    cut.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (cut / name).write_bytes((tiny_model_folder / name).read_bytes())
    (cut / "model.safetensors").write_bytes((tiny_model_folder / "model.safetensors").read_bytes()[:100])
    with pytest.raises(ModelError, match="is damaged"):
        check_settings(load_settings([f"model={cut}"]))


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
        "update needs 76.0 of 76.0 GB; micro-batches have at most 12556 tokens, a shared prompt counted once; vLLM",
        "55.6 GB for checkpoints",
        "A step: 18.7 s (rollouts 9.0",
        "60 steps 18.7",
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
        (2, 1_543_714_304, "spider", "verl.n_gpus=2", 1 / 1.206),
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
