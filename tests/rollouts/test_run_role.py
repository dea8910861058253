"""The environment says which part of a run this process is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.cli.exit_codes import run_command
from sql_agent.errors import ConfigError
from sql_agent.rollouts.run_role import RunRole


def test_a_role_that_does_not_exist_is_refused_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "foo")
    with pytest.raises(ConfigError, match="AGL_CURRENT_ROLE=foo") as caught:
        RunRole.from_environment(None)
    assert "algorithm, runner, both" in str(caught.value.hint)
    monkeypatch.setenv("AGL_CURRENT_ROLE", "")
    assert RunRole.from_environment(None).role == "both"


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:4747"])
def test_a_store_s_switch_that_is_neither_on_nor_off_is_refused(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "both")
    monkeypatch.setenv("AGL_MANAGED_STORE", "maybe")
    with pytest.raises(ConfigError, match="AGL_MANAGED_STORE=maybe is neither 0 nor 1"):
        RunRole.from_environment(address)
    monkeypatch.setenv("AGL_MANAGED_STORE", "0" if address else "1")
    assert RunRole.from_environment(address).managed_store is (address is None)


@pytest.mark.parametrize("name", ["AGL_SERVER_HOST", "AGL_SERVER_PORT"])
def test_the_address_that_agent_lightning_s_programs_read_is_refused_with_what_to_use_here(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "5000")
    said = []
    for command in (["train"], ["train", "--external-store-address=http://127.0.0.1:9"], ["store"]):
        assert run_command(command[0], command[1:]) == 2
        error = capsys.readouterr().err
        assert f"error: {name}=5000 is not used by this program" in error
        said.append(error.splitlines()[1])
    own, elsewhere, store = said
    assert ("sql-agent store --host" if name.endswith("HOST") else "takes a free port") in own
    assert "--external-store-address" in elsewhere
    assert name.removeprefix("AGL_SERVER_").lower() in store


def test_the_variables_of_roles_and_stores_count_in_the_file_env_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("AGL_CURRENT_ROLE=runner\nAGL_MANAGED_STORE=0\nAGL_SERVER_PORT=\n")
    monkeypatch.chdir(tmp_path)
    role = RunRole.from_environment("http://127.0.0.1:4747")
    assert (role.role, role.managed_store) == ("runner", False)
