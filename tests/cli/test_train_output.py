"""The last lines of a run say how it ended and how to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.cli.train import say_unfinished, say_whether_learned
from sql_agent.config.settings import load_settings
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog


@pytest.mark.parametrize(("informative", "last"), [(0.0, "learned nothing"), (0.25, "ended well: 1 step.")])
def test_a_run_without_any_gradient_says_that_it_learned_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], informative: float, last: str
) -> None:
    log = RunLog(tmp_path)
    log.metrics(1, {"groups/informative": informative})
    say_whether_learned(log, Ui())
    assert last in capsys.readouterr().out


def test_the_advice_of_a_run_that_ended_early_fits_what_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(["train.steps=9", f"runs_dir={tmp_path}", "run_name=r"])
    log = RunLog.create(settings)
    say_unfinished(log, settings, Ui(), how="was interrupted")
    assert "--resume" not in (unsaved := capsys.readouterr().out) and "repeat the command" in unsaved
    (log.folder / "checkpoints" / "step-000002").mkdir(parents=True)
    (log.folder / "checkpoints" / "step-000002" / "state.json").touch()
    for step in (1, 2, 3):
        log.metrics(step, {})
    say_unfinished(log, settings, Ui(), how="failed")
    said = capsys.readouterr().out
    assert "after 3 of 9 steps; step 2 is saved" in said and "--resume run_name=r" in said
