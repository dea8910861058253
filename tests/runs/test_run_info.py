"""A run's folder says which program wrote it, when, and how each of its sessions ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.errors import TrainingError
from sql_agent.runs.run_folder import read_sessions, recorded_session


def test_each_session_of_a_run_says_how_it_ended(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), recorded_session(tmp_path):
        (running,) = read_sessions(tmp_path)
        assert running.end is None and running.seconds is None, "a killed process leaves it like this"
        raise KeyboardInterrupt
    with pytest.raises(TrainingError), recorded_session(tmp_path):
        raise TrainingError("step 3 (train): 4 rollouts were lost", hint="repair")
    with recorded_session(tmp_path, "mysql://reader@db.example:3306/medical"):
        pass
    sessions = read_sessions(tmp_path)
    assert sessions[2].database == "mysql://reader@db.example:3306/medical"
    assert [session.end for session in sessions] == ["interrupted", "failed", "finished"]
    assert sessions[1].detail == "step 3 (train): 4 rollouts were lost"
    assert all(session.seconds is not None for session in sessions)
    assert {"python", "openai-agents", "transformers"} <= sessions[0].versions.keys()
    assert sessions[0].commit is None or len(sessions[0].commit.removesuffix("+changes")) == 40


def test_a_run_of_an_older_version_has_no_sessions(tmp_path: Path) -> None:
    assert read_sessions(tmp_path) == ()
