"""The verl backend with a replacement for verl itself: scheduler, proxies, runners, files and stops are real."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import ConfigError
from sql_agent.schemas import Question
from sql_agent.training.verl.config import defaults, verl_environment, verl_options
from tests.support.fake_verl import assert_sampled_ids_have_their_log_probabilities
from tests.support.processes import finish, lines, start, stop, wait_for
from tests.support.small_database import make_database

SCRIPT = Path(__file__).parents[2] / "support" / "train_with_fake_verl.py"
ROOT = Path(__file__).parents[3]
LOOPS = ROOT / "sql_agent/training/verl/agent_loops.yaml"
QUESTION = Question(
    id="q",
    question="In which form does Drug 1 come?",
    answer="capsule",
    sql="SELECT form FROM drugs_info WHERE med_name = 'Drug 1'",
    task_type="drug_field",
)


@pytest.fixture
def arguments(tmp_path: Path, tiny_model_folder: Path) -> list[str]:
    make_database(tmp_path / "medical.db")
    for name in ("train", "val"):
        questions = [
            QUESTION.model_copy(
                update={"id": f"{name}-{i}", "question": f"{name} {i}: in which form does Drug 1 come?"}
            )
            for i in range(4)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(q.model_dump_json() + "\n" for q in questions), "utf-8")
    return [
        "--backend=verl",
        f"--model={tiny_model_folder}",
        f"--train-file={tmp_path / 'train.jsonl'}",
        f"--val-file={tmp_path / 'val.jsonl'}",
        "--n-runners=1",
        f"database.path={tmp_path / 'medical.db'}",
        f"runs_dir={tmp_path / 'runs'}",
        "run_name=r",
        "sft.steps=0",
        "runner.n_proxies=2",
        "verl.config.sql_agent.endpoints=3",
        "verl.gpu_memory_gb=24",
        "train.questions_per_step=2",
        "train.group_size=3",
        "train.steps=2",
        "train.save_every=1",
        "data.val_questions=2",
    ]


@pytest.mark.slow
def test_a_run_leaves_the_same_files_as_any_backend_and_says_how_far_a_long_start_is(
    arguments: list[str], tmp_path: Path
) -> None:
    process = start([*arguments, "runner.stall_s=1"], script=SCRIPT, FAKE_VERL="slow")
    output = finish(process)
    assert process.returncode == 0, output
    assert "verl updates the policy or saves it" in output
    assert "verl is still starting" in output and "(WorkerDict pid=7) Capturing CUDA graphs [/]  40%" in output
    for part in ("questions, checks, store, runners", "proxies", "preflight", "in all"):
        assert re.search(rf"^ *{part} +\d+", output, re.MULTILINE), "the seconds of the start by part"
    assert "\n\n" not in output, "the clock of a terminal leaves nothing where there is none"
    run = tmp_path / "runs" / "r"
    steps = lines(run / "metrics.jsonl")
    assert [s["step"] for s in steps] == [1, 2]
    for step in steps:
        assert step["rollouts/enqueued"] == step["rollouts/kept"] == step["rollouts/with_triplets"] == 6
        assert step["rollouts/failed"] == step["rollouts/split"] == step["judge/failed"] == 0
        assert step["reward/mean"] == pytest.approx(1.1)
        assert step["agent/turns"] == 2 and step["agent/tool_calls"] == 1
        assert step["timing/update_s"] == 0.25 and step["timing/rollout_s"] > 0
        assert step["update/grad_norm"] == 1.5 and "actor/lr" not in step, "a NaN is no number for a JSON file"
    assert [v["step"] for v in lines(run / "validation.jsonl")] == [0, 2]
    assert lines(run / "validation.jsonl")[0]["val/template/accurate"] == 1.0
    assert lines(run / "validation.jsonl")[0]["val/template/accurate/drug_field"] == 1.0
    assert len(lines(run / "rollouts.jsonl")) == 2 * 6 + 2 * 2
    assert (run / "report.html").exists()

    for rollout in json.loads((run / "sequences-1.json").read_text()):
        (part,) = rollout["sequences"]
        assert_sampled_ids_have_their_log_probabilities(part)
        assert 0 in part["response_mask"], "the tool's answer is in the response, and masked"


@pytest.mark.slow
def test_every_validation_asks_the_benchmark_too_each_question_in_its_database(
    tmp_path: Path, tiny_model_folder: Path
) -> None:
    greeting = tmp_path / "site" / "sitecustomize.py"  # which every process imports
    greeting.parent.mkdir()
    greeting.write_text("print('a library greets', flush=True)")
    process = start(
        [
            "--backend=verl", f"--model={tiny_model_folder}", "task=tests.support.library:TASK", "--n-runners=1",
            f"runs_dir={tmp_path / 'runs'}", "run_name=r", "verl.config.sql_agent.endpoints=1", "verl.gpu_memory_gb=24",
            "sft.steps=1", "sft.batch=2", f"local.cache_dir={tmp_path / 'cache'}",
            "train.questions_per_step=2", "train.group_size=2", "train.steps=1", "data.natural_questions=2",
            "train.validate_untrained=true",
        ],
        script=SCRIPT, PYTHONPATH=f"{greeting.parent}:{Path(__file__).parents[3]}",
    )  # fmt: skip
    output = finish(process)
    assert process.returncode == 0, output
    run = tmp_path / "runs" / "r"
    assert Path(json.loads((run / "sft.json").read_text())["model"]).is_dir(), "verl waited for the fine-tuned model"
    assert "a library greets" in (run / "sft.log").read_text(), "what a library prints is no progress"
    assert [validation["step"] for validation in lines(run / "validation.jsonl")] == [-1, 0, 1]
    for validation in lines(run / "validation.jsonl"):
        for name in ("template", "natural"):
            assert validation[f"val/{name}/questions"] == validation[f"val/{name}/rollouts/kept"] == 2
    asked = [r["record"]["question"] for r in lines(run / "rollouts.jsonl") if r["val_set"] == "natural"]
    assert [question["database"] for question in asked] == ["branch"] * 6
    result = output.split("Result: validation, greedy")[1]
    assert "natural" in result and "untrained" in result and "supervised start" in result


@pytest.mark.slow
def test_however_a_run_is_stopped_everything_ends_and_it_resumes_after_the_last_checkpoint(
    arguments: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "r"
    process = start([*arguments, "train.steps=1000"], script=SCRIPT)
    output = stop(process, signal.SIGINT, run)
    assert process.returncode == 130, output
    assert "--resume run_name=r" in output

    process = start([*arguments, "train.steps=1000", "--resume"], script=SCRIPT)
    stop(process, signal.SIGKILL, run)

    saved = int((run / "checkpoints" / "latest_checkpointed_iteration.txt").read_text())
    process = start([*arguments, f"train.steps={saved + 1}", "--resume"], script=SCRIPT)
    output = finish(process)
    assert process.returncode == 0, output
    assert f"Resuming after step {saved}" in output
    # The kill may have come between the checkpoint and the log of its step, which the resumed run says.
    unwritten = saved if "missing in metrics.jsonl" in output else None
    written = [step for step in range(1, saved + 2) if step != unwritten]
    assert [s["step"] for s in lines(run / "metrics.jsonl")] == written
    trained = [r["step"] for r in lines(run / "rollouts.jsonl") if r["mode"] == "train"]
    assert all(trained.count(step) == 6 for step in written), "no rollout twice, none missing"


@pytest.mark.slow
def test_a_crash_of_the_trainer_is_reported_with_its_cause(arguments: list[str]) -> None:
    process = start(arguments, script=SCRIPT, FAKE_VERL="crash")
    output = finish(process)
    assert process.returncode == 2
    assert "verl ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in output
    assert "verl.log" in output and "a smaller verl.gpu_memory_gb" in output and "Traceback" not in output
    assert "--resume" not in output, "a run without a checkpoint cannot be resumed"


@pytest.mark.slow
def test_an_update_that_runs_out_of_memory_is_done_again_once_with_smaller_passes(
    arguments: list[str], tmp_path: Path
) -> None:
    shorter = "verl.config.data.max_response_length=512"
    process = start([*arguments, shorter], script=SCRIPT, FAKE_VERL="memory")
    output = finish(process)
    assert process.returncode == 0, output
    assert "An update ran out of GPU memory. The run goes on after step 1, once, with smaller micro-batches:" in output
    assert output.count("Resuming after step 1 of 2") == 1
    run = tmp_path / "runs" / "r"
    assert [step["step"] for step in lines(run / "metrics.jsonl")] == [1, 2]
    options = json.loads((run / "verl.json").read_text())
    assert options["overrides"]["actor_rollout_ref"]["actor"]["ppo_max_token_len_per_gpu"] == 24576 // 2
    assert options["overrides"]["actor_rollout_ref"]["model"]["enable_gradient_checkpointing"] is True


@pytest.mark.slow
def test_a_verl_that_is_killed_is_said_to_be(arguments: list[str], tmp_path: Path) -> None:
    process = start([*arguments, "train.steps=1000"], script=SCRIPT)
    wait_for(lambda: len(lines(tmp_path / "runs" / "r" / "metrics.jsonl")) >= 1, process)
    children = psutil.Process(process.pid).children(recursive=True)
    next(child for child in children if "tests.support.fake_verl" in child.cmdline()).kill()
    output = finish(process)
    assert process.returncode == 2 and "error: verl was killed by SIGKILL" in output, output
    assert "The run failed after" in output


@pytest.mark.slow
def test_fewer_questions_than_a_step_has_are_refused_before_verl_starts(arguments: list[str], tmp_path: Path) -> None:
    process = start([*arguments, "train.questions_per_step=5"], script=SCRIPT)
    output = finish(process)
    assert process.returncode == 2, output
    assert "4 training questions do not fill a step of train.questions_per_step=5" in output
    assert not (tmp_path / "runs" / "r").exists()


@pytest.mark.slow
def test_a_failed_vllm_ends_the_run_with_its_cause_although_verl_waits_for_it(arguments: list[str]) -> None:
    process = start(arguments, script=SCRIPT, FAKE_VERL="engine")
    output = finish(process)
    assert process.returncode == 2, output
    assert "vLLM failed, and verl waits for vLLM: RuntimeError: Worker failed with error" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_rollouts_that_the_infrastructure_loses_stop_the_run_with_the_reason(arguments: list[str]) -> None:
    process = start([*arguments, "runner.rollout_retries=1"], script=SCRIPT, FAKE_VERL="lose")
    output = finish(process)
    assert process.returncode == 2, output
    # The policy fails already in the call that is made before the first rollout.
    assert "error: the LLM proxy at" in output and "did not answer" in output
    assert "Traceback (most recent call last)" not in output.rpartition("error:")[2]


def options(*overrides: str) -> dict[str, Any]:
    settings = load_settings(["verl.gpu_memory_gb=80", *overrides], defaults=defaults("medical"))
    return verl_options(settings, run=Path("/r"), rollout_server="http://g", resume=False)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.questions_per_step=5", "train.minibatches=2"], "not a multiple"),
        (["verl.nnodes=2"], "other hosts cannot reach 127.0.0.1"),
        (["verl.trainer_mode=separate_async"], "at least two GPUs"),
        (["verl.config.algorithm.filter_groups.enable=true"], "use verl.dynamic_sampling"),
        (["verl.config.sql_agent.level=turn"], "level.*trajectory"),
        (["verl.config.sql_agent.endpoints=none"], "endpoints"),
        (["verl.config.sql_agent.actors=2"], "actors"),
    ],
)
def test_contradictions_are_refused_before_anything_starts(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options(*overrides)


def test_every_class_that_verl_loads_by_its_name_exists() -> None:
    names = re.findall(r"_target_: (\S+)", LOOPS.read_text("utf-8"))
    for of_verl in (options(), options("verl.trainer_mode=separate_async", "verl.n_gpus=2")):
        names.append(of_verl["actor_rollout_ref"]["rollout"]["agent"]["agent_loop_manager_class"])
        sampler = of_verl["trainer"]["v1"]["sampler"]["custom_sampler"]
        names.append(f"{sampler['path'].removeprefix('pkg://')}.{sampler['name']}")
    for module, _, name in (each.rpartition(".") for each in names):
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, f"{module} has no {name}"
    library = options()["actor_rollout_ref"]["model"]["external_lib"]
    for module in (library, verl_environment()["VERL_USE_EXTERNAL_MODULES"]):
        assert importlib.util.find_spec(module)


def test_training_and_validation_sample_as_the_agent_settings_say() -> None:
    rollout = options("agent.temperature=0.7", "agent.val_temperature=0.2")["actor_rollout_ref"]["rollout"]
    assert rollout["temperature"] == 0.7
    assert rollout["val_kwargs"] == {"temperature": 0.2, "top_p": 1.0, "do_sample": True}


def test_a_cluster_of_restart_ray_is_joined_with_its_token_and_no_ray_here_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert "RAY_AUTH_MODE" not in verl_environment(), "a cluster without a token"
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    assert verl_environment()["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "k8s")
    assert verl_environment()["RAY_AUTH_MODE"] == "k8s"
    monkeypatch.delenv("RAY_ADDRESS")
    assert "RAY_AUTH_MODE" not in verl_environment(), "verl starts a Ray of its own"


def test_the_recipe_of_spider_and_the_settings_of_an_npu_come_over_the_defaults_of_verl() -> None:
    settings = load_settings(defaults=defaults("spider", npu=True))
    assert (settings.agent.workflow, settings.agent.max_turns, settings.train.questions_per_step) == (
        "check-rewrite",
        3,
        64,
    )
    assert settings.verl.config["trainer"] == {"device": "npu", "total_epochs": 1000000, "logger": ["console", "file"]}
    model = settings.verl.config["actor_rollout_ref"]["model"]
    assert model["override_config"] == {"attn_implementation": "flash_attention_2"}
    assert model["use_remove_padding"] and not model["use_fused_kernels"]
    apart = ["verl.trainer_mode=separate_async", "verl.n_gpus=2"]
    rollout = options("verl.config.trainer.device=npu", *apart)["actor_rollout_ref"]["rollout"]
    assert rollout["checkpoint_engine"] == {"backend": "hccl"}
    assert options(*apart)["actor_rollout_ref"]["rollout"]["checkpoint_engine"] == {"backend": "nccl"}
    longest = verl_options(settings, run=Path("/r"), rollout_server="http://g", resume=False)
    assert longest["actor_rollout_ref"]["rollout"]["max_model_len"] == 6144
