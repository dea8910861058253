"""A model that does not exist is refused by every command at once, and leaves nothing behind."""

from __future__ import annotations

import time
from pathlib import Path

import huggingface_hub
import pytest

from sql_agent.cli.command import run_command
from sql_agent.cli.model_choice import check_model, is_hub_id
from sql_agent.errors import ModelError
from tests.support.small_database import make_database


@pytest.mark.parametrize(
    "named", ["runs/nope", "./nope/nope", "/nope", "~/nope", "nosuch", "a/b/c", "own/nope", "", "a/"]
)
def test_a_path_or_a_plain_name_is_no_id_of_the_hub(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_hub_id(named)
    assert is_hub_id("Qwen/Qwen2.5-0.5B-Instruct")


@pytest.mark.parametrize("named", ["runs/nope", "./nope", "nosuch"])
@pytest.mark.parametrize("command", ["ask", "evaluate", "chat", "train"])
def test_every_command_refuses_it_without_asking_the_hub(
    command: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", never)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    monkeypatch.chdir(tmp_path)
    settings = [f"database.path={make_database(tmp_path / 'medical.db')}", f"runs_dir={tmp_path / 'runs'}"]
    model = ["--model", named] if command in {"ask", "train"} else [named]
    question = ["Which form?"] if command == "ask" else []
    assert run_command(command, [*question, *model, *settings]) == 2
    assert named in capsys.readouterr().err
    assert not [path for path in tmp_path.glob("runs/*") if path.name != "chat"]


def test_an_id_that_the_hub_does_not_return_is_refused_after_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def model_info(_: object, name: str, timeout: float) -> None:
        tries.append((name, timeout))
        raise OSError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"there is no folder no/such, and the hub .*: Name or service not known"):
        check_model("no/such")
    assert [name for name, _ in tries] == ["no/such"] and tries[0][1] <= 5
    assert time.monotonic() - started < 5
