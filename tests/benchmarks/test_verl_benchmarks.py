"""The benchmarks of the verl backend start, and read what a run leaves; verl itself is replaced, or not started."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from sql_agent.config.settings import load_settings
from sql_agent.schemas import Question
from sql_agent.training.verl.config import defaults
from tests.support.small_database import make_database

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def arguments(tmp_path: Path, tiny_model_folder: Path) -> list[str]:
    database = make_database(tmp_path / "medical.db")
    question = "In which form does Drug 1 come?"
    sql = "SELECT form FROM drugs_info WHERE med_name = 'Drug 1'"
    for name in ("train", "val"):
        asked = [
            Question(
                id=f"{name}-{i}", question=f"{name} {i}: {question}", answer="capsule", sql=sql, task_type="drug_field"
            )
            for i in range(4)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(q.model_dump_json() + "\n" for q in asked), "utf-8")
    return [
        f"--model={tiny_model_folder}", f"--train-file={tmp_path / 'train.jsonl'}", f"--out={tmp_path / 'out'}",
        "--steps=4", f"data.val_file={tmp_path / 'val.jsonl'}", f"database.path={database}", "verl.gpu_memory_gb=24",
    ]  # fmt: skip


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module(name)


@pytest.mark.slow
def test_scaling_says_the_rate_the_lost_rollouts_and_how_busy_the_processes_are(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = benchmark("verl_scaling", monkeypatch)
    monkeypatch.setattr("verl_runs.TRAIN", ROOT / "tests" / "support" / "train_with_fake_verl.py")
    monkeypatch.setattr("verl_runs._LEAST", 0.0)  # steps of 0.2 s may not cost the store a tick of its clock
    small = ["train.questions_per_step=2", "train.group_size=3", "data.val_questions=2", "runner.n_proxies=1"]
    monkeypatch.setattr(sys, "argv", ["verl_scaling.py", "--gpus=1", "--runners=1", *arguments, *small])
    bench.main()
    (result,) = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["lost"] == 0 and result["rollouts_per_step"] == 6 and result["steps"] == 2
    assert result["rollouts_per_s"] == pytest.approx(6 / result["seconds"]["step"])
    assert "store, scheduler" in {process["name"] for process in result["processes"]}
    assert f"{result['rollouts_per_s']:.1f} rollouts/s, 1.00 times the first" in capsys.readouterr().out


def test_the_peer_of_the_step_time_gets_our_options_with_verls_own_tool_loop(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = benchmark("verl_step_time", monkeypatch)
    overrides = bench.run_settings(bench.parsed(["--questions=2", *arguments]))
    path = bench.write_options(
        load_settings(overrides, defaults=defaults("medical")), tmp_path / "peer", our_forward=False
    )
    given = json.loads(path.read_text())
    assert set(given) == {"options", "overrides", "sft_result", "environment"}, "what verl_main reads"
    assert given["options"]["actor_rollout_ref"]["model"]["external_lib"] is None, "verl's own forward pass"
    rollout = given["options"]["actor_rollout_ref"]["rollout"]
    assert rollout["agent"]["default_agent_loop"] == "tool_agent" and rollout["n"] == 8
    assert "agent" not in given["overrides"]["actor_rollout_ref"]["rollout"]
    assert given["overrides"]["algorithm"]["adv_estimator"] != "grpo", "with which our trainer skips groups"
    assert Path(rollout["multi_turn"]["function_tool_path"]).exists()
    first = pd.read_parquet(tmp_path / "peer" / "data" / "train.parquet")["prompt"][0]
    assert [message["role"] for message in first] == ["system", "user"]


def test_both_halves_are_compared_stage_by_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = benchmark("verl_step_time", monkeypatch)

    def steps(total: float) -> list[dict[str, Any]]:
        return [{"timing_s/step": total, "timing_s/gen": 1.0, "timing_s/update_actor": 2.0, "perf/mfu/actor": 0.3}] * 3

    bench.report(steps(4.0), steps(5.0), load_settings([], defaults=defaults("medical")), tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["ratio"] == pytest.approx(0.8) and result["mfu_step"]["lightning"] == pytest.approx(0.15)
    assert "ratio of step times: 0.80" in capsys.readouterr().out
