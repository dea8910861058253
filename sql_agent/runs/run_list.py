"""List the runs in a folder, with their end and validation results, on the terminal or as a page."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sql_agent.runs.alarms import alarms
from sql_agent.runs.charts import of_grpo, shares
from sql_agent.runs.pages import asset, content_policy, render_template
from sql_agent.runs.run_folder import METRICS, VALIDATION, is_run, model_of, read_config
from sql_agent.runs.run_info import how_it_ended, read_sessions
from sql_agent.runs.run_lines import run_lines
from sql_agent.system.files import atomic_write

_COLUMNS = ["ended", "steps", "reward", "accurate", "correct", "model", "started"]


class RunSummary(NamedTuple):
    """A run in the list; `texts` are the cells of `_COLUMNS`, `alarms` the sentences of `alarms()`."""

    folder: Path
    texts: list[str]
    alarms: list[str]

    @property
    def report(self) -> str | None:
        """The path of the report, relative to the folder of runs; None without a report."""
        return f"{self.folder.name}/report.html" if (self.folder / "report.html").exists() else None


def run_summaries(runs_dir: Path) -> list[RunSummary]:
    """Return the runs in `runs_dir`, the latest start first. Raises DataError for a damaged file."""
    folders = [folder for folder in runs_dir.iterdir() if is_run(folder)] if runs_dir.is_dir() else []
    summaries = [_summary(folder) for folder in folders]
    return sorted(summaries, key=lambda summary: summary.texts[-1], reverse=True)


def say_runs(summaries: Sequence[RunSummary], say: Callable[[str], None]) -> None:
    """Print two lines for each run, and a line for each alarm."""
    for summary in summaries:
        of = dict(zip(_COLUMNS, summary.texts, strict=True))
        say(f"{summary.folder}: {of['ended']}, {of['steps']} steps, reward {of['reward']}, started {of['started']}")
        say(f"  {of['model']}; accurate: {of['accurate']}; correct: {of['correct']}")
        for alarm in summary.alarms:
            say(f"  look at the rollouts: {alarm}")


def write_run_list(runs_dir: Path) -> Path:
    """Write the page index.html, with links to the reports, into `runs_dir`, and return the page's path."""
    target, nonce = runs_dir / "index.html", secrets.token_urlsafe(16)
    page = render_template(
        "runs.html.j2",
        nonce=nonce,
        policy=content_policy(nonce),
        style=asset("page.css"),
        folder=runs_dir.resolve(),
        columns=_COLUMNS,
        runs=run_summaries(runs_dir),
    )
    with atomic_write(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return target


def _summary(folder: Path) -> RunSummary:
    config, sessions = read_config(folder), read_sessions(folder)
    steps, validations = list(run_lines(folder / METRICS)), list(run_lines(folder / VALIDATION))
    reward = steps[-1].get("reward/mean") if steps else None
    texts = [
        how_it_ended(sessions),
        f"{len(steps)} / {config.get('train', {}).get('steps', '?')}",
        "–" if reward is None else f"{reward:.3f}",
        shares(validations, "accurate"),
        shares(validations, "correct"),
        model_of(config),
        sessions[0].started_at if sessions else "–",
    ]
    return RunSummary(folder, texts, list(map(str, alarms(steps, of_grpo(validations)).values())))
