"""A run folder, a checkpoint or a `.env` from somebody else runs no code and starts no command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from sql_agent.__main__ import main
from sql_agent.cli.export import export_checkpoint
from sql_agent.config.endpoints import EndpointSettings
from sql_agent.config.settings import load_settings, public_dump, read_sources
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.evaluation.folder import About, EvaluationFolder
from sql_agent.runs.run_folder import agent_of_run
from sql_agent.tasks.task import DISCLAIMER, disclaimer_of

TASK = "planted_task:TASK"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that planted code writes; the working folder has a module that writes it when it is imported."""
    written = tmp_path / "planted"
    (tmp_path / "planted_task.py").write_text(f"open({str(written)!r}, 'w').close()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return written


def run_folder(folder: Path, *overrides: str) -> Path:
    """Write a stranger's run with one checkpoint, and return the run's folder."""
    model = folder / "checkpoints" / "step-000001" / "model"
    model.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.bin"):
        (model / name).write_text("{}", encoding="utf-8")
    settings = public_dump(load_settings([f"runs_dir={folder.parent}", f"run_name={folder.name}"]))
    for name, value in (item.split("=", 1) for item in overrides):
        section, _, key = name.rpartition(".")
        (settings[section] if section else settings)[key] = value
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.mark.parametrize("planted", ["agent.mcp_command=touch planted", f"task={TASK}", "agent.mcp_url=http://x/mcp"])
def test_settings_of_a_run_that_run_code_are_refused_by_every_command(
    mark: Path, tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path / "runs" / "r", "agent.tool=mcp", planted)
    bare = str(run / "checkpoints" / "step-000001" / "model")
    for arguments in (["ask", "--run", str(run), "Who?"], ["evaluate", bare], ["chat", bare], ["chat", str(run)]):
        assert main(arguments) == 2, arguments
        said = capsys.readouterr().err
        assert f"{run / 'config.json'} sets {planted}" in said
        assert "to the command line" in said
    (run / "checkpoints" / "step-000001" / "state.json").write_text("{}", encoding="utf-8")
    assert main(["train", "--resume", "run_name=r", f"runs_dir={run.parent}"]) == 2
    assert f"sets {planted}" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENT__MCP_COMMAND", "touch planted"),
        ("TASK", TASK),
        ("AGENT__MCP_URL", "http://x/mcp"),
        ("VERL__CONFIG__MODEL__EXTERNAL_LIB", "planted_task"),
    ],
)
def test_the_dotenv_of_the_current_folder_runs_no_code(
    mark: Path,
    tmp_path: Path,
    name: str,
    value: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / ".env").write_text(f"SQL_AGENT_AGENT__TOOL=mcp\nSQL_AGENT_{name}={value}\n", encoding="utf-8")
    for command in (["ask", "Who?"], ["train", "--ci-fast"], ["evaluate"], ["chat"]):
        assert main(command) == 2
        assert f".env sets SQL_AGENT_{name}={value}" in capsys.readouterr().err
    assert not mark.exists()
    monkeypatch.setenv(f"SQL_AGENT_{name}", value)
    load_settings()  # whoever sets an environment variable runs code anyway


def test_a_setting_named_on_the_command_line_is_trusted_unless_the_file_would_still_win(tmp_path: Path) -> None:
    settings = tmp_path / "mine.toml"
    settings.write_text(f"task = '{TASK}'\n", encoding="utf-8")
    (tmp_path / ".env").write_text("SQL_AGENT_TASK=other:TASK\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(ConfigError, match=r"\.env sets SQL_AGENT_TASK=other:TASK"):
            load_settings(config_file=settings)
        assert load_settings([f"task={TASK}"], config_file=settings).task == TASK


@pytest.mark.parametrize("planted", [f"task={TASK}", "agent.mcp_command=touch planted"])
def test_a_strangers_run_is_drawn_listed_and_exported_without_its_code(
    mark: Path, tmp_path: Path, planted: str
) -> None:
    run = run_folder(tmp_path / "runs" / "r", "agent.tool=mcp", planted)
    (run / "checkpoints" / "step-000001" / "state.json").write_text('{"step": 1, "files": {}}', encoding="utf-8")
    for arguments in (["report", str(run)], ["runs", str(run)], ["report", "--all", str(run.parent)]):
        assert main(arguments) == 0, arguments
    assert agent_of_run(run).tool == "mcp"  # for `export`
    assert disclaimer_of(TASK) == DISCLAIMER
    assert not mark.exists()


@pytest.mark.parametrize("planted", [f"task={TASK}", "agent.mcp_command=touch planted"])
def test_a_strangers_evaluation_runs_no_code(
    mark: Path, tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, value = planted.partition("=")
    settings = public_dump(load_settings([f"runs_dir={tmp_path}"]))
    (settings["agent"] if "." in name else settings)[name.rpartition(".")[2]] = value
    about = About(model="m", judge="facts", version="1", started="now", settings=settings.copy())
    folder = tmp_path / "eval-1"
    folder.mkdir()
    EvaluationFolder.create(folder, about, {"set": []})
    for arguments in (["--resume", str(folder)], ["--compare", str(folder), str(folder)]):
        assert main(["evaluate", *arguments]) == 2
        assert f"{folder / 'config.json'} sets {planted}" in capsys.readouterr().err
    assert not mark.exists()
    EvaluationFolder.open(folder).check_trusted(read_sources([planted]))


def test_verl_loads_no_pickle_that_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").write_text("", encoding="utf-8")
    loads = "import sys, torch\ntorch.load(sys.argv[sys.argv.index('--local_dir') + 1] + '/x.pt', weights_only=False)\n"
    (tmp_path / "verl" / "model_merger.py").write_text(loads, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    shards = tmp_path / "global_step_1" / "actor"
    shards.mkdir(parents=True)
    torch.save({"w": RunsCode()}, shards / "x.pt")
    with pytest.raises(TrainingError, match="could not merge"):
        export_checkpoint(shards.parent, tmp_path / "out")
    assert not (tmp_path / "planted").exists()


class RunsCode:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch planted",)


def test_a_dotenv_sends_no_exported_key_to_its_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("openai_api_base=http://127.0.0.1:9/v1\nOPENAI_MODEL=m\n", encoding="utf-8")
    assert EndpointSettings().base_url  # without a key
    monkeypatch.setenv("OPENAI_API_KEY", "sk-exported")
    assert main(["ask", "Who?"]) == 2
    assert ".env sets OPENAI_API_BASE, and OPENAI_API_KEY of the environment would be sent" in capsys.readouterr().err
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
    assert EndpointSettings().base_url


def test_a_deleted_setting_is_named_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_folder(tmp_path / "runs" / "r", "judge.deleted=1")
    for command in (["ask", "--run", str(run), "Who?"], ["train", "--resume", "run_name=r", f"runs_dir={run.parent}"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert f"unknown setting judge.deleted ({run / 'config.json'})" in said and "run.json" in said


def test_a_password_in_the_model_endpoint_is_refused_and_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "http://user:very-secret@127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_MODEL", "m")
    for command in (["ask", "Who?"], ["evaluate"], ["chat"]):
        assert main(command) == 2
        said = capsys.readouterr()
        assert "OPENAI_API_BASE contains a user name or a password" in said.err and "very-secret" not in str(said)
