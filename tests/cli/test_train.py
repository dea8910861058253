"""The command line trains, stops, resumes and refuses, through the real store, proxy, runners and adapter."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sql_agent.cli.command import run_command
from sql_agent.cli.train import parse_arguments
from sql_agent.cli.train_plan import plan_settings
from sql_agent.reward.judges.llm_judge import shipped_rubric
from tests.support.judge_server import serving
from tests.support.processes import finish, lines, start, stop, wait_for
from tests.support.tiny_training import tiny_training


@pytest.fixture
def arguments(tmp_path: Path, tiny_model_folder: Path) -> list[str]:
    return tiny_training(tmp_path, tiny_model_folder)


@pytest.mark.slow
def test_a_run_leaves_its_files_with_every_rollout_accounted_for(arguments: list[str], tmp_path: Path) -> None:
    process = start([*arguments, "--ci-fast", "tracking.to=wandb,tensorboard"], WANDB_MODE="offline")
    output = finish(process)
    assert process.returncode == 0, output
    run = tmp_path / "runs" / "r"
    (step,) = lines(run / "metrics.jsonl")
    assert step["rollouts/enqueued"] == 4
    assert step["rollouts/with_triplets"] == step["rollouts/finished"] == step["rollouts/kept"] == 4
    assert step["rollouts/failed"] == 0
    for name in ("reward/mean", "reward/rule", "reward/judge", "judge/failed", "agent/tool_calls", "agent/turns",
                 "timing/rollout_s", "timing/update_s"):  # fmt: skip
        assert name in step
    rollouts = lines(run / "rollouts.jsonl")
    assert [r["mode"] for r in rollouts].count("train") == 4
    assert [r["mode"] for r in rollouts].count("val") == 4  # two before, two after
    assert all(r["record"]["reward"] is not None for r in rollouts)
    assert [v["step"] for v in lines(run / "validation.jsonl")] == [0, 1]
    assert json.loads((run / "config.json").read_text(encoding="utf-8"))["train"]["steps"] == 1
    assert (run / "report.html").exists()
    assert list(run.glob("tracking/wandb/offline-run-*/run-*.wandb")) and list(run.glob("tracking/tensorboard/events*"))
    assert "Tracker" not in output, "none failed"
    assert "not medical advice" in output
    assert (run / "checkpoints" / "step-000001" / "model" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_run_does_the_steps_that_fit_into_its_minutes_and_resumes(arguments: list[str], tmp_path: Path) -> None:
    process = start([*arguments, "train.steps=3", "local.max_minutes=0.01"])
    output = " ".join(finish(process).split())
    assert process.returncode == 0, output
    assert "local.max_minutes=0.01 leaves time for 0 of the 2 remaining steps; --resume continues the run" in output
    run = tmp_path / "runs" / "r"
    assert [v["step"] for v in lines(run / "validation.jsonl")] == [0, 1]
    process = start(["--resume", f"runs_dir={tmp_path / 'runs'}", "run_name=r", "local.max_minutes=60"])
    output = " ".join(finish(process).split())
    assert process.returncode == 0, output
    assert "local.max_minutes=60 leaves time for 1 of the 1 remaining steps" in output
    assert [v["step"] for v in lines(run / "validation.jsonl")] == [0, 1, 3]


@pytest.mark.slow
def test_however_a_run_is_stopped_nothing_is_left_behind_and_it_resumes(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs" / "r"
    process = start([*arguments, "train.steps=500"])
    output = stop(process, signal.SIGTERM, run)
    assert process.returncode == 130, output
    assert "--resume" in output
    done = len(lines(run / "metrics.jsonl"))
    assert (run / "checkpoints" / f"step-{done:06d}" / "state.json").exists()
    stop(start([*arguments, "train.steps=500", "--resume"]), signal.SIGKILL, run)

    kept = sorted((run / "checkpoints").glob("step-*[0-9]"))
    saved = json.loads((kept[-1] / "state.json").read_text(encoding="utf-8"))["step"]
    resumed = start([*arguments, "--resume", f"train.steps={saved + 1}"])
    output = finish(resumed)
    assert resumed.returncode == 0, output
    assert [m["step"] for m in lines(run / "metrics.jsonl")] == list(range(1, saved + 2))
    assert {r["group"] for r in lines(run / "rollouts.jsonl") if r["step"] == saved + 1 and r["mode"] == "train"}

    assert run_command("train", [*arguments, "train.lr=0.5", "--resume"]) == 2
    assert "train.lr" in capsys.readouterr().err
    with sqlite3.connect(tmp_path / "medical.db") as database:
        database.execute("UPDATE drugs_info SET form = 'other' WHERE id = 1")
    assert run_command("train", [*arguments, "--resume", f"train.steps={saved + 2}"]) == 2
    assert "the database changed after" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_stopped_before_its_first_step_resumes_after_supervised_fine_tuning(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs" / "r"
    arguments = [*arguments, "train.steps=1", "train.group_size=32", "runner.concurrency=2"]
    process = start(arguments)
    wait_for(lambda: bool(lines(run / "validation.jsonl")), process)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output = finish(process, timeout=60)
    assert process.returncode == 130, output
    assert "Stopping after saving a checkpoint" in output
    assert "after 0 of 1 steps; step 0 is saved. To continue: the same command with --resume run_name=r" in output
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step-000000"]
    assert run_command("train", arguments) == 2
    assert "already holds a run" in capsys.readouterr().err
    *of_step, in_hand = json.loads((run / "in_hand.json").read_text())
    assert of_step == ["train", 1] and 0 < len(in_hand) < 64
    assert f"{len(in_hand)} of 64 rollouts of this step have ended and are kept for --resume" in output
    resumed = start([*arguments, "--resume"])
    output = finish(resumed)
    assert resumed.returncode == 0, output
    assert f"{len(in_hand)} of 64 rollouts had ended before the interrupt and are used" in output
    trained = [rollout["rollout_id"] for rollout in lines(run / "rollouts.jsonl") if rollout["mode"] == "train"]
    assert len(set(trained)) == len(trained) == 64 and {rollout["rollout_id"] for rollout in in_hand} < set(trained)
    assert [step["step"] for step in lines(run / "metrics.jsonl")] == [1]
    assert [validation["step"] for validation in lines(run / "validation.jsonl")] == [0, 1]


@pytest.mark.slow
def test_a_rollout_that_its_judge_lost_is_run_again_so_that_its_group_stays_whole(
    arguments: list[str], tmp_path: Path
) -> None:
    for name in ("train", "val"):  # questions of one's own, without a type, are judged even where nothing was queried
        path = tmp_path / f"{name}.jsonl"
        plain = [{k: v for k, v in question.items() if k in {"id", "question", "answer"}} for question in lines(path)]
        path.write_text("".join(json.dumps(question) + "\n" for question in plain))
    criteria = shipped_rubric("default").criterion + shipped_rubric("refusal").criterion
    grades = {c.name: {"reason": "so", "level": c.levels[0].name} for c in criteria}
    with serving() as server:
        server.default = json.dumps(grades)
        server.script = [server.default, server.default, 401]  # two validations, and the first of the four rollouts
        process = start(
            [*arguments, "--ci-fast", "judge.name=llm"],
            TEACHER_MODEL="m", TEACHER_BASE_URL=f"{server.url}/v1", TEACHER_API_KEY="sk-night-secret",
        )  # fmt: skip
        output = finish(process)
    assert process.returncode == 0, output
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert "sk-night-secret" not in output
    assert not [path for path in written if b"sk-night-secret" in path.read_bytes()], "a key is in no file of a run"
    (step,) = lines(tmp_path / "runs" / "r" / "metrics.jsonl")
    assert (step["rollouts/enqueued"], step["rollouts/kept"], step["judge/failed"]) == (5, 4, 1)
    groups = [r["group"] for r in lines(tmp_path / "runs" / "r" / "rollouts.jsonl") if r["mode"] == "train"]
    assert sorted(groups.count(group) for group in set(groups)) == [2, 3]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (["database.path=/nowhere.db"], "nowhere.db"),
        (["database.path=mysql://root:geheim@db.example/x"], "DATABASE_URL"),
        (["--train-file=/nowhere.jsonl"], "nowhere.jsonl"),
        (["train.lr=fast"], "train.lr"),
        (["train.learning_rate=1"], "learning_rate"),
        (["judge.name=llm"], "TEACHER_MODEL"),
        (["task=medicine"], "package.module:NAME"),
        (["--external-store-address=http://127.0.0.1:9"], "agl store"),
        (["--model=/nowhere"], "/nowhere"),
        (["--resume", "run_name=never"], "never"),
        (
            ["--backend=verl", "verl.host=203.0.113.7", "verl.gpu_memory_gb=80"],
            "verl.host is not an address of this host",
        ),
        (["--backend=verl", "train.questions_per_step=5", "train.minibatches=2"], "not a multiple"),
        (["verl.dynamic_sampling=1"], "the first group with equal rewards"),
        (["train.questions_per_step=4", "train.minibatches=5"], "more than train.questions_per_step=4"),
        (["agent.max_tokens=512", "local.max_context=512"], "leaves no room for a prompt in local.max_context"),
        (["sft.steps=3"], "no training question has gold SQL, so there is nothing to fine-tune on"),
        (["not-an-override"], "section.key=value"),
        (["seed=99999999999999999999999"], "less than or equal to 2147483647"),
    ],
)
def test_bad_input_is_said_in_words_before_anything_is_left_behind(
    arguments: list[str], extra: list[str], expected: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TEACHER_MODEL", "")
    monkeypatch.setattr("sql_agent.cli.train_checks.verl_is_installed", lambda: True)
    assert run_command("train", [*arguments, *extra]) == 2
    said = capsys.readouterr()
    assert expected in said.out + said.err
    assert not (tmp_path / "runs").exists()


def test_a_question_that_cannot_be_sent_to_a_store_is_refused_before_anything_starts(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "val.jsonl").write_text(r'{"id": "1", "question": "\ud800 a?", "answer": "oral"}', encoding="utf-8")
    check = ["check", str(tmp_path / "val.jsonl"), f"--db={tmp_path / 'medical.db'}"]
    assert run_command("train", arguments) == run_command("data", check) == 2
    assert capsys.readouterr().err.count("val.jsonl, row 1, column question: ") == 2
    assert not (tmp_path / "runs").exists()


def test_ci_trains_the_bundled_model_by_the_recipe_for_two_cores_and_other_models_by_the_defaults() -> None:
    def asked(*arguments: str) -> tuple[int, int]:
        settings, _ = plan_settings(parse_arguments(["--backend=local", *arguments]))
        return settings.train.steps, settings.train.group_size * settings.train.questions_per_step

    recipe, one_step, defaults = (14, 96), (1, 16), (20, 16)
    assert asked("--ci") == recipe
    assert asked("--ci-fast") == one_step
    assert asked("--ci", "train.group_size=4", "train.steps=2") == (2, 48), "what is given is stronger"
    assert asked("--ci", "--model=folder") == asked("--ci", "--train-file=mine.jsonl") == defaults
    assert asked() == defaults


def test_the_recipe_of_ci_ends_after_a_quarter_of_an_hour_unless_the_number_of_steps_is_given() -> None:
    minutes = [
        plan_settings(parse_arguments(["--backend=local", *given]))[0].local.max_minutes
        for given in (["--ci"], ["--ci", "train.steps=100"], ["--ci", "train.steps=100", "local.max_minutes=5"], [])
    ]
    assert minutes == [15, None, 5, None]


def test_mistakes_are_looked_for_before_the_packages_that_take_seconds_to_import() -> None:
    code = "import sys, sql_agent.cli.train; print({'agentlightning', 'litellm', 'openai', 'torch'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "set()"
