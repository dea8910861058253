"""What a power cut or a full disk left of a run is said in one line, with the file and what to do."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sql_agent.__main__ import main
from sql_agent.cli.model_check import check_model_folder
from sql_agent.cli.train_settings import parse_arguments, settings_from
from sql_agent.config.settings import load_settings
from sql_agent.errors import DataError
from sql_agent.runs.run_log import RunLog
from sql_agent.training.local import checkpoint
from sql_agent.training.policy.model import load_policy
from tests.support.processes import run_command
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
    folder = RunLog.create(settings_from(parse_arguments(arguments))).folder
    policy = load_policy(str(tiny_model_folder), cache_dir=tmp_path)
    optimizer = torch.optim.AdamW(policy.model.parameters())
    policy.model(torch.tensor([[1, 2]])).logits.sum().backward()
    optimizer.step()
    for step in (1, 2):
        checkpoint.save(folder, step, policy, optimizer, keep=2)
    return arguments


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes({"emptied": b"", "cut": content[:middle], "zeros": bytes(len(content))}[how])


@pytest.mark.parametrize("how", ["emptied", "cut", "zeros"])
@pytest.mark.parametrize("name", ["state.json", "optimizer.pt", "model/model.safetensors", "model/tokenizer.json"])
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
    damage(run / "checkpoints" / "step-000002" / weights, "emptied")
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


@pytest.mark.parametrize("how", ["cut", "zeros", "emptied"])
def test_a_damaged_checkpoint_of_verl_is_named_with_what_to_do_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    run = RunLog.create(load_settings([f"runs_dir={tmp_path}", "run_name=gpu"])).folder
    for step in (2, 4):
        actor = run / "checkpoints" / f"global_step_{step}" / "actor"
        actor.mkdir(parents=True)
        for name in ("model", "optim"):
            torch.save({"weight": torch.zeros(1000)}, actor / f"{name}_world_size_1_rank_0.pt")
    latest = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    latest.write_text("4")
    damage(actor / "model_world_size_1_rank_0.pt", how)
    with pytest.raises(DataError, match="the checkpoint of step 4 is damaged: ") as found:
        RunLog.resume(load_settings([f"runs_dir={tmp_path}", "run_name=gpu"]))
    assert str(actor / "model_world_size_1_rank_0.pt") in found.value.message
    assert f"goes on after step 2, once verl is told so: echo 2 > {latest}" in str(found.value.hint)
    assert "the checkpoint of step 4 is damaged" in said_by(capsys, "export", run, tmp_path / "out")[0]


@pytest.fixture
def model(tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the tiny model, to be damaged; no other model is asked."""
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    return shutil.copytree(tiny_model_folder, tmp_path / "model")


COMMANDS = (["ask", "How?"], ["evaluate"], ["chat"], ["train", "--backend=local"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b'{\n  "model_type": "llama",\n  oops\n}', "line 3: not JSON"),
        ("config.json", b"[1, 2]", "line 1: not a JSON object"),
        ("config.json", b"", "line 1: nothing is there"),
        ("config.json", b'{"hidden_size": 32}', "model_type: Field required"),
        ("config.json", b'{"model_type": "llama", "hidden_size": "32"}', "hidden_size: Input should be a valid int"),
        ("tokenizer.json", None, "not JSON"),
        ("tokenizer.json", b"{}", "model: Field required"),
        ("tokenizer.json", b"\xff\xfe", "line 1: not text in UTF-8"),
        ("tokenizer_config.json", None, "not JSON"),
        ("generation_config.json", b"7", "line 1: not a JSON object"),
    ],
)
def test_a_damaged_file_of_a_model_is_named_before_anything_is_loaded(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, said: str
) -> None:
    whole = (model / name).read_bytes()
    (model / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    for command in COMMANDS:
        wrong, _ = said_by(capsys, *command, f"model={model}", f"runs_dir={tmp_path / 'runs'}")
        assert f"{model / name} is damaged: " in wrong and said in wrong


def test_a_damaged_file_of_a_model_is_named_before_slow_imports(tmp_path: Path, model: Path) -> None:
    (model / "config.json").write_bytes(b"{")
    program = "import sys; from sql_agent.__main__ import main; main(sys.argv[1:])"
    program += "; print({'torch', 'transformers', 'agents'} & {*sys.modules})"
    for command in COMMANDS[:3]:
        ended = run_command(sys.executable, "-c", program, *command, f"model={model}", f"runs_dir={tmp_path}")
        assert ended.stdout == "set()\n" and "config.json is damaged: line 1" in ended.stderr


@pytest.mark.parametrize("how", ["emptied", "cut", "zeros"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.gguf", "model-00001-of-00002.safetensors"])
def test_damaged_weights_of_any_form_are_named(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    if name.endswith("safetensors"):
        (model / "model.safetensors").rename(model / name)
    else:
        (model / "model.safetensors").unlink()
        torch.save({"weight": torch.zeros(1000)}, model / name)
    if not name.endswith("gguf"):
        check_model_folder(str(model))
    damage(model / name, how)
    wrong, _ = said_by(capsys, "evaluate", f"--model={model}", f"runs_dir={tmp_path / 'runs'}")
    assert str(model / name) in wrong


def test_weights_in_the_old_format_of_torch_are_accepted_and_never_unpickled(model: Path) -> None:
    (model / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(3)}, model / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    check_model_folder(str(model))
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Deed(model / "done")))
    check_model_folder(str(model))
    assert not (model / "done").exists()


class Deed:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_a_file_of_weights_that_an_index_names_and_that_is_missing_is_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    wrong, _ = said_by(capsys, "evaluate", f"--model={model}")
    assert "names 2 files of weights, and model-00002-of-00002.safetensors is not there" in wrong


def test_weights_that_are_none_are_refused_before_a_question_is_asked(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "model.safetensors").write_bytes(b"garbage" * 1000)
    for command in (["evaluate", f"--model={model}"], ["train", f"--model={model}", "--backend=local"]):
        wrong, _ = said_by(capsys, *command, f"runs_dir={tmp_path / 'runs'}")
        assert f"{model / 'model.safetensors'} is no safetensors file" in wrong
