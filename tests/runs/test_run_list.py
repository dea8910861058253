"""The list of the runs has the result of each, on the terminal and as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.cli import report, runs
from tests.support.small_run import make_run


def test_all_runs_are_listed_with_their_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "night")
    make_run(tmp_path / "day", gain=0.1)
    (tmp_path / "eval-1").mkdir()
    assert runs.main([f"runs_dir={tmp_path}"]) == 0
    output = capsys.readouterr().out
    assert "night: finished, 2 / 2 steps, reward 0.400" in output and "eval-1" not in output
    assert "accurate: template 25 → 75\u00a0%; natural 25 → 75\u00a0%" in output


def test_the_page_of_all_runs_links_to_the_reports_that_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("night", "<b>day"):
        make_run(tmp_path / name)
    report.main([str(tmp_path / "night")])
    assert report.main(["--all", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<a href="night/report.html">night</a>' in page
    assert page.count("not medical advice") == 1
    assert "&lt;b&gt;day" in page and "<b>day" not in page


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.main([f"runs_dir={tmp_path}"])
    assert "There is no run" in capsys.readouterr().out
