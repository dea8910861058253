"""The environment says which part of a run this process is."""

from __future__ import annotations

import pytest

from sql_agent.agl.run_role import RunRole
from sql_agent.errors import ConfigError


def test_a_role_that_does_not_exist_is_refused_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CURRENT_ROLE", "foo")
    with pytest.raises(ConfigError, match="AGL_CURRENT_ROLE=foo") as caught:
        RunRole.from_environment(None)
    assert "algorithm, runner, both" in str(caught.value.hint)
    monkeypatch.setenv("AGL_CURRENT_ROLE", "")
    assert RunRole.from_environment(None).role == "both"
