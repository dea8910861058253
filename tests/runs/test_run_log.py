"""A run's folder belongs to that run alone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.config.settings import load_settings, read_sources
from sql_agent.errors import ConfigError
from sql_agent.rollouts.trajectory import FinishedRollout, Turn, merge_turns
from sql_agent.runs.resume import settings_to_resume
from sql_agent.runs.run_folder import settings_of_run
from sql_agent.runs.run_log import RunLog


def test_runs_that_start_in_the_same_second_get_a_folder_each(tmp_path: Path) -> None:
    settings = load_settings([f"runs_dir={tmp_path}"])
    with ThreadPoolExecutor(8) as threads:
        logs = list(threads.map(lambda _: RunLog.create(settings), range(8)))
    assert len({log.folder for log in logs}) == 8
    for log in logs:
        assert json.loads((log.folder / "config.json").read_text())["runs_dir"] == str(tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_with_the_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for settings in (["run_name=night"], []):
        with pytest.raises(ConfigError, match=r"runs_dir=.*file: "):
            RunLog.create(load_settings([f"runs_dir={tmp_path / 'file'}", *settings]))


def test_a_run_is_found_and_resumed_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    given = ["task=shop.toml", "model=model", "database.path=shop.db", "runs_dir=runs", "run_name=night"]
    monkeypatch.chdir(tmp_path)
    folder = RunLog.create(load_settings(given)).folder.absolute()
    (folder / "checkpoints" / "step-000001").mkdir(parents=True)
    (folder / "checkpoints" / "step-000001" / "state.json").touch()
    assert settings_to_resume(read_sources(given)).task == str(tmp_path / "shop.toml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    settings = settings_of_run(folder, [], {})
    assert (settings.task, settings.model) == (str(tmp_path / "shop.toml"), str(tmp_path / "model"))
    assert settings.database.path == tmp_path / "shop.db"


def test_a_full_disk_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    said = run_log_error(tmp_path, capsys)
    assert f"could not write to {tmp_path / 'metrics.jsonl'}, where " in said
    assert "B are free: No space left on device" in said


def test_a_disk_without_inodes_is_not_called_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_files=100, f_favail=0))
    assert "where no inodes are free" in run_log_error(tmp_path, capsys)


def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert f"could not use {tmp_path}/file/metrics.jsonl: " in run_log_error(tmp_path / "file", capsys)


def test_a_metrics_file_that_is_deleted_during_a_run_is_said_once(tmp_path: Path) -> None:
    log, said = RunLog(tmp_path), list[str]()
    log.say = said.append
    for step in (1, 2, 3, 4):
        log.metrics(step, {})
        if step == 2:
            (tmp_path / "metrics.jsonl").unlink()
    assert said == [
        f"{tmp_path / 'metrics.jsonl'} was deleted during the run: its earlier lines are lost, also in the report"
    ]


def test_rollouts_of_an_interrupted_step_are_taken_once_and_for_that_step_only(tmp_path: Path) -> None:
    turn = Turn((1, 2), (3,), (-0.5,), (0, 0), forced=(0, 1))
    rollout = FinishedRollout("id", "4-0", None, 0.1, (turn,), tuple(merge_turns([turn])), None)
    log = RunLog(tmp_path)
    log.keep_in_hand("train", 4, [rollout])
    assert log.take_in_hand("train", 4) == [rollout] and log.take_in_hand("train", 4) == []
    log.keep_in_hand("train", 4, [rollout])
    assert log.take_in_hand("train", 3) == log.take_in_hand("train", 4) == []


def run_log_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the first of the two lines that a command ends with that writes into `folder`."""

    def main(_: object) -> int:
        RunLog(folder).metrics(1, {"reward/mean": 0.5})
        return 0

    assert exits_cleanly(main) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert second.startswith("  next: ")
    return first
