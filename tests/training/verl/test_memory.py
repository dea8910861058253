"""The GPU memory of a run is estimated before it starts, and decides the size of micro-batches."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError
from sql_agent.schemas import Question
from sql_agent.system.resources import gpu_memory, gpu_names
from sql_agent.training.verl import memory, sft, untrained
from sql_agent.training.verl.config import defaults, verl_options
from sql_agent.training.verl.interprocess import write_dataset
from sql_agent.training.verl.memory import GB, MemoryPlan, smaller_micro_batches
from tests.support.model_shapes import make_config

H100 = (81559 << 20, 81000 << 20)  # total and free bytes


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "gpu_memory", lambda: H100)


def settings_of(tmp_path: Path, size: str, *overrides: str, task: str = "spider") -> Settings:
    folder = make_config(tmp_path / size, size)
    return load_settings([f"model={folder}", "backend=verl", *overrides], defaults=defaults(task))


def plan_memory(settings: Settings) -> MemoryPlan:
    plan = memory.plan_memory(settings)
    memory.refuse(settings, plan)
    return plan


def options(settings: Settings) -> Any:
    return verl_options(settings, run=Path("/r"), rollout_server="", resume=False)["actor_rollout_ref"]


@pytest.mark.parametrize("task", ["spider", "medical"])
@pytest.mark.parametrize(
    ("size", "given", "recomputes"),
    [
        ("0.5B", ["verl.gpu_memory_gb=80"], False),
        ("0.5B", ["verl.gpu_memory_gb=40"], False),
        ("0.5B", ["verl.gpu_memory_gb=24"], True),
        ("1.5B", [], False),
        ("1.5B", ["verl.gpu_memory_gb=80"], False),
        ("1.5B", ["verl.gpu_memory_gb=40"], True),
        ("1.5B", ["verl.gpu_memory_gb=24", "verl.lora_rank=32"], True),
        ("7B", ["verl.gpu_memory_gb=80", "verl.lora_rank=32"], True),
    ],
)
def test_every_phase_of_the_defaults_fits_on_the_card(
    tmp_path: Path, task: str, size: str, given: list[str], recomputes: bool, card: None
) -> None:
    settings = settings_of(tmp_path, size, *given, task=task)
    plan = plan_memory(settings)
    assert plan.worst[1] <= plan.card.usable < plan.card.free
    assert plan.checkpointing == recomputes
    assert plan.tokens >= options(settings)["rollout"]["max_model_len"], "the longest rollout fits into a micro-batch"
    assert plan.vllm > 2 * GB


def test_the_defaults_that_ran_out_of_memory_are_known_not_to_fit(tmp_path: Path, card: None) -> None:
    """Spider, 1.5B, on an H100: 24,576 tokens without checkpointing took 75 GB beside 25 GB of weights."""
    old = ["actor.ppo_max_token_len_per_gpu=24576", "model.enable_gradient_checkpointing=false"]
    settings = settings_of(tmp_path, "1.5B", *(f"verl.config.actor_rollout_ref.{each}" for each in old))
    with pytest.raises(ConfigError, match=r"does not fit: update needs 11\d") as caught:
        plan_memory(settings)
    assert "activations" in caught.value.message
    assert "leave the tokens" in str(caught.value.hint)
    assert options(settings_of(tmp_path, "1.5B"))["actor"]["ppo_max_token_len_per_gpu"] < 16384


@pytest.mark.parametrize(("size", "gb", "advice"), [("1.5B", 24, "--lora-rank"), ("7B", 80, "--lora-rank")])
def test_what_does_not_fit_is_refused_with_what_would(tmp_path: Path, size: str, gb: int, advice: str) -> None:
    with pytest.raises(ConfigError, match=rf"does not fit: .* needs \d+\.\d GB of each GPU, and .* of {gb}\.0 GB") as e:
        plan_memory(settings_of(tmp_path, size, f"verl.gpu_memory_gb={gb}"))
    assert advice in str(e.value.hint)


def test_more_gpus_share_the_weights(tmp_path: Path) -> None:
    card_of_80 = ["verl.gpu_memory_gb=80", "sft.steps=0"]
    plan = plan_memory(settings_of(tmp_path, "7B", "verl.n_gpus=4", *card_of_80))
    assert plan.fits and "fine-tuning" not in plan.phases


def test_what_verl_config_sets_stays_and_is_part_of_the_estimate(tmp_path: Path, card: None) -> None:
    given = ["actor.ppo_max_token_len_per_gpu=9000", "rollout.gpu_memory_utilization=0.5"]
    settings = settings_of(tmp_path, "0.5B", *(f"verl.config.actor_rollout_ref.{each}" for each in given))
    plan = plan_memory(settings)
    assert plan.tokens == 9000
    assert plan.vllm == pytest.approx(0.5 * H100[0])
    assert "engine_kwargs" not in options(settings)["rollout"], "vLLM measures what the user's share leaves"


def test_vllm_gets_its_share_of_the_whole_card_when_the_run_may_use_a_part_of_it(tmp_path: Path, card: None) -> None:
    settings = settings_of(tmp_path, "1.5B", "verl.gpu_memory_gb=40")
    plan, rollout = plan_memory(settings), options(settings)["rollout"]
    assert rollout["gpu_memory_utilization"] * H100[0] == pytest.approx(plan.vllm, rel=0.001)
    assert rollout["gpu_memory_utilization"] < 0.1
    cache = rollout["engine_kwargs"]["vllm"]["kv_cache_memory_bytes"]
    assert 0.3 * GB < cache < plan.vllm - 3 * GB, "the weights take 3 GB; what is fixed need not be measured"


@pytest.mark.usefixtures("card")
def test_supervised_fine_tuning_keeps_within_the_part_of_a_card_that_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", shares.append)
    for given in (["verl.gpu_memory_gb=46"], []):
        settings = settings_of(tmp_path, "1.5B", *given)
        assert sft._compute(settings).micro_tokens == plan_memory(settings).sft_tokens
    part, whole = shares
    assert part * H100[0] == pytest.approx(44.5 * GB), "46 GB, less the CUDA context"
    assert 0.95 < whole < H100[1] / H100[0]


def test_frozen_weights_are_kept_in_bf16_and_trained_ones_in_fp32(tmp_path: Path, card: None) -> None:
    assert options(settings_of(tmp_path, "7B", "verl.lora_rank=8"))["actor"]["fsdp_config"]["model_dtype"] == "bfloat16"
    assert options(settings_of(tmp_path, "0.5B"))["actor"]["fsdp_config"]["model_dtype"] == "fp32"


@pytest.mark.usefixtures("card")
def test_a_micro_batch_is_halved_once_and_stays_long_enough_for_the_longest_rollout(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "1.5B")
    chosen = options(settings)["actor"]["ppo_max_token_len_per_gpu"]
    card = memory.card_of(settings)
    smaller = smaller_micro_batches(settings, {"actor_rollout_ref": options(settings)}, card)
    assert list(smaller.values()) == [max(chosen // 2, 6144), True, 84.9]
    again = settings_of(tmp_path, "1.5B", *(f"{name}={value}" for name, value in smaller.items()))
    assert smaller_micro_batches(again, {"actor_rollout_ref": options(again)}, card) == {}, "given now, so it stays"


def test_a_host_without_a_gpu_is_asked_for_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "gpu_memory", lambda: None)
    with pytest.raises(ConfigError, match="nvidia-smi lists no GPU") as caught:
        plan_memory(settings_of(tmp_path, "0.5B"))
    assert "verl.gpu_memory_gb=80" in str(caught.value.hint)


def test_a_model_of_unknown_dimensions_gets_the_smallest_micro_batches(tmp_path: Path, card: None) -> None:
    folder = make_config(tmp_path / "experts", "0.5B")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("{", '{"num_experts": 64, ', 1))
    plan = plan_memory(load_settings([f"model={folder}"], defaults=defaults("spider")))
    assert (plan.tokens, plan.checkpointing, plan.phases) == (6144, True, {})


@pytest.mark.parametrize(
    ("visible", "names"), [(None, ["A", "B"]), ("1", ["B"]), ("", []), ("-1", [])], ids=["unset", "one", "empty", "-1"]
)
def test_only_gpus_that_a_program_may_use_count(
    visible: str | None, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\ncase \"$4\" in '') printf 'A\\nB\\n';; 1) echo B;; *) exit 6;; esac\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_names() == names


def test_a_damaged_driver_costs_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr("subprocess.run", hang)
    assert gpu_memory() is None


def test_the_untrained_model_gets_the_memory_that_vllm_has_in_the_run(
    tmp_path: Path, card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another run starts on the same GPU, vLLM would measure the other run's memory too, and fail."""
    asked: list[dict[str, Any]] = []

    def model_endpoint(*given: Any) -> Any:
        asked.append(given[-1])
        raise KeyboardInterrupt

    settings = settings_of(tmp_path, "0.5B", "verl.gpu_memory_gb=28", task="medical")
    question = Question(id="q", question="?", answer="a", sql="SELECT 1", task_type="drug_field")
    write_dataset([question], tmp_path / "data" / "val.parquet", "val")
    monkeypatch.setattr(untrained, "model_endpoint", model_endpoint)
    with pytest.raises(KeyboardInterrupt):
        untrained.ask_untrained(tmp_path, settings)
    rollout = options(settings)["rollout"]
    assert asked == [
        {
            "gpu_memory_utilization": pytest.approx(rollout["gpu_memory_utilization"], abs=1e-4),
            "kv_cache_memory_bytes": rollout["engine_kwargs"]["vllm"]["kv_cache_memory_bytes"],
            "max_model_len": rollout["max_model_len"],  # vLLM refuses a cache without room for the model's context
        }
    ]
