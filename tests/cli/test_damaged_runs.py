"""What a power cut or a full disk left of a run is said in one line, with the file and what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from sql_agent.__main__ import main
from sql_agent.cli.train import parse_arguments
from sql_agent.cli.train_plan import plan_settings
from sql_agent.runs.run_log import RunLog
from sql_agent.training.local.trainer import save_checkpoint
from sql_agent.training.policy.model import load_policy
from tests.support.small_run import make_run
from tests.support.tiny_training import tiny_training


def said_by(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    """Return what was wrong and what to do next, as a command printed it that ended with exit code 2."""
    assert main([str(argument) for argument in arguments]) == 2
    wrong, todo = capsys.readouterr().err.splitlines()
    assert wrong.startswith("error: ") and todo.startswith("  next: ")
    return wrong, todo


@pytest.fixture
def training(tmp_path: Path, tiny_model_folder: Path) -> list[str]:
    """The arguments of a run whose steps 1 and 2 are saved."""
    arguments = tiny_training(tmp_path, tiny_model_folder)
    folder = RunLog.create(plan_settings(parse_arguments(arguments))[0]).folder
    policy = load_policy(str(tiny_model_folder), cache_dir=tmp_path)
    optimizer = torch.optim.AdamW(policy.model.parameters())
    policy.model(torch.tensor([[1, 2]])).logits.sum().backward()
    optimizer.step()
    for step in (1, 2):
        save_checkpoint(folder, step, policy, optimizer, keep=2)
    return arguments


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    path.write_bytes({"emptied": b"", "cut": content[:middle], "zeros": bytes(len(content)), "flipped": flipped}[how])


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("state.json", how) for how in ("emptied", "cut", "zeros")),
        *(("optimizer.pt", how) for how in ("cut", "flipped")),
        *(("model/model.safetensors", how) for how in ("emptied", "cut", "flipped")),
        ("model/tokenizer.json", "zeros"),
    ],
)
def test_a_damaged_checkpoint_is_named_with_the_step_that_can_be_resumed_instead(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    saved = tmp_path / "runs" / "r" / "checkpoints"
    damage(saved / "step-000002" / name, how)
    wrong, todo = said_by(capsys, "train", *training, "--resume")
    assert "the checkpoint of step 2 is damaged" in wrong and str(saved / "step-000002" / name) in wrong
    assert f"remove the folder {saved / 'step-000002'}; --resume then goes on after step 1" in todo
    assert (saved / "step-000001").exists(), "nothing is removed without being asked"


def test_an_older_checkpoint_is_not_promised_where_there_is_none(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "runs" / "r" / "checkpoints"
    shutil.rmtree(saved / "step-000001")
    (saved / "step-000002" / "optimizer.pt").unlink()
    wrong, todo = said_by(capsys, "train", *training, "--resume")
    assert "optimizer.pt is missing" in wrong and "without --resume" in todo


def test_damaged_weights_are_neither_asked_nor_exported(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, weights = tmp_path / "runs" / "r", "model/model.safetensors"
    damage(run / "checkpoints" / "step-000002" / weights, "flipped")
    for command in (["ask", "How?", "--run", run], ["export", run, tmp_path / "out"]):
        assert (
            f"the checkpoint of step 2 is damaged: {run}/checkpoints/step-000002/{weights}"
            in (said_by(capsys, *command)[0])
        )
    assert not (tmp_path / "out").exists()
    assert main(["export", str(run), str(tmp_path / "out"), "--step=1"]) == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in ("config.json", "run.json") for content in (b"", b"[]", b"{", b"\xff\x00")),
        ("run.json", b'{"unknown": 1}'),
    ],
)
def test_a_damaged_file_of_a_run_is_named_by_every_command_that_reads_it(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    run, other = tmp_path / "runs" / "r", make_run(tmp_path / "other")
    (run / name).write_bytes(content)
    commands: list[list[object]] = [["report", run], ["report", run, "--serve"], ["report", other, "--compare", run]]
    commands += [["train", *training, "--resume"]]
    commands += [["ask", "How?", "--run", run]] if name == "config.json" else []
    for command in commands:
        wrong, todo = said_by(capsys, *command)
        assert f"{run / name} is damaged" in wrong
        assert "new run under another run_name" in todo if name == "config.json" else f"remove {run / name}" in todo


@pytest.mark.parametrize("line", [b"\x00\x00\x00", b"[1]", b'{"step": 1, "rew', b"\xff"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl"])
def test_a_damaged_line_is_named_and_a_last_one_that_was_cut_is_left_out(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, line: bytes
) -> None:
    run, path = tmp_path / "runs" / "r", tmp_path / "runs" / "r" / name
    whole = (make_run(tmp_path / "other") / name).read_bytes()
    first, rest = whole.split(b"\n", 1)
    path.write_bytes(first + b"\n" + line + b"\n" + rest)
    commands: list[list[object]] = [["report", run], ["train", *training, "--resume"]]
    commands += [["ask", "--run", run]] if name == "rollouts.jsonl" else []
    for command in commands:
        wrong, todo = said_by(capsys, *command)
        assert f"{path} is damaged: line 2: " in wrong and f"sed -i '2d' {path}" in todo
    path.write_bytes(whole + line)
    assert main(["report", str(run)]) == 0


@pytest.fixture
def model(tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the tiny model, to be damaged; no other model is asked."""
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    return shutil.copytree(tiny_model_folder, tmp_path / "model")


def test_weights_that_are_none_are_refused_before_a_question_is_asked(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "model.safetensors").write_bytes(b"garbage" * 1000)
    for command in (["evaluate", f"--model={model}"], ["train", f"--model={model}", "--backend=local"]):
        wrong, _ = said_by(capsys, *command, f"runs_dir={tmp_path / 'runs'}")
        assert f"{model / 'model.safetensors'} is damaged: " in wrong
