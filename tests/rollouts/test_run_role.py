"""The environment says which part of a run this process is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.errors import ConfigError
from sql_agent.rollouts.run_role import RunRole


def test_a_role_that_does_not_exist_is_refused_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "foo")
    with pytest.raises(ConfigError, match="AGL_CURRENT_ROLE=foo") as caught:
        RunRole.from_environment(None)
    assert "algorithm or runner or both" in str(caught.value.hint)
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
    assert (RunRole.from_environment(address).store is None) is (address is None)


def test_the_variables_of_roles_and_stores_count_in_the_file_env_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("AGL_CURRENT_ROLE=runner\nAGL_MANAGED_STORE=0\n")
    monkeypatch.chdir(tmp_path)
    role = RunRole.from_environment("http://127.0.0.1:4747")
    assert role.role == "runner" and role.store is not None


def test_a_token_that_no_http_header_can_carry_is_refused_and_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("secret\nline", "geheim-ü"):
        monkeypatch.setenv("STORE_TOKEN", token)
        with pytest.raises(ConfigError, match="STORE_TOKEN has a character that is not allowed") as caught:
            RunRole.from_environment("http://127.0.0.1:4747")
        assert "secret" not in f"{caught.value}{caught.value.hint}"
