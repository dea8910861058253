"""Report on a run, on two compared runs or on all runs: as HTML files, as a live page, or in the terminal."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sql_agent.errors import DataError
from sql_agent.runs.charts import Stage, alarms, charts, kinds_table, of_grpo, result_table, shares, stages
from sql_agent.runs.pages import (
    RolloutPack,
    asset,
    content_policy,
    packed,
    page_response,
    render_live_report,
    render_report,
    render_template,
)
from sql_agent.runs.run_folder import (
    METRICS,
    PROMPT,
    ROLLOUTS,
    SFT,
    VALIDATION,
    GrowingLines,
    JsonObject,
    RunSession,
    how_it_ended,
    is_run,
    model_of,
    read_config,
    read_sessions,
    run_lines,
)
from sql_agent.system.files import write_text
from sql_agent.system.servers import web_app
from sql_agent.tasks.task import disclaimer_of

_COLUMNS = ["ended", "steps", "reward", "accurate", "correct", "model", "started"]


def write_report(run_dir: Path, compared: Path | None = None) -> Path:
    """Write report.html into `run_dir`, or comparison.html with the run `compared`, and return its path.

    An interrupted run may lack files or have an incomplete last line. Raises DataError for a damaged file.
    """
    runs = [RunReader(folder) for folder in (run_dir, compared) if folder is not None]
    target = run_dir / ("report.html" if compared is None else "comparison.html")
    write_text(target, render_report(_page_data(runs), [run.pack.blocks() for run in runs]))
    return target


class LiveReport:
    """Web app with a report that is updated while the files of `runs` grow."""

    def __init__(self, runs: Sequence[RunReader]) -> None:
        self._runs = runs
        self._lock = threading.Lock()  # needed, because starlette calls the endpoints in threads

    def app(self, token: str) -> ASGIApp:
        routes = [
            Route("/", self._get_page),
            Route("/data", self._get_data),
            Route("/block/{run:int}-{number:int}", self._get_block),
        ]
        return web_app(routes, token=token, host="127.0.0.1")

    def _get_page(self, _request: Request) -> Response:
        return page_response(lambda nonce: render_live_report(self._runs[0].disclaimer, nonce))

    def _get_data(self, request: Request) -> Response:
        """Return all data except rollout records, or status 304 if nothing has changed."""
        with self._lock:
            problems = [problem for run in self._runs if (problem := _refreshed(run))]
            shown = repr((problems, [run.version for run in self._runs]))
            etag = f'"{hashlib.sha256(shown.encode()).hexdigest()}"'
            if request.headers.get("If-None-Match") == etag:
                return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
            data = packed({**_page_data(self._runs), "problems": problems})
        return _gzipped(data, "application/json", etag)

    def _get_block(self, request: Request) -> Response:
        run, number = request.path_params["run"], request.path_params["number"]
        with self._lock:
            blocks = self._runs[run].pack.blocks() if run < len(self._runs) else []
        if number >= len(blocks):
            return Response(status_code=HTTPStatus.NOT_FOUND)
        return _gzipped(blocks[number], "text/plain")


def _page_data(runs: Sequence[RunReader]) -> JsonObject:
    letters = "AB" if len(runs) > 1 else [""]
    measured = [stage for run, letter in zip(runs, letters, strict=True) for stage in run.stages(letter)]
    return {
        "title": "Run " + " · ".join(run.name for run in runs),
        "disclaimer": runs[0].disclaimer,
        "tables": [asdict(result_table(measured))],
        "folded": [asdict(kinds_table(measured))] if measured else [],
        "runs": [run.data() for run in runs],
    }


def _refreshed(run: RunReader) -> str | None:
    """Read the new lines of `run`; return None, or a message with the error and its hint if a file is unreadable."""
    try:
        run.refresh()
    except DataError as error:
        return f"{error.message}; next: {error.hint}"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    return None


def _gzipped(body: bytes, media_type: str, etag: str | None = None) -> Response:
    headers = {"Content-Encoding": "gzip"} | ({"ETag": etag} if etag else {})
    return Response(body, media_type=media_type, headers=headers)


class RunReader:
    """Reads the folder of a run, which may still be growing."""

    def __init__(self, folder: Path) -> None:
        self.config: JsonObject = read_config(folder)
        self.folder = folder
        self.name = folder.resolve().name
        self.disclaimer = disclaimer_of(self.config["task"])
        self.sessions: tuple[RunSession, ...] = ()
        self._starts = 0
        self._start()
        self.refresh()

    def refresh(self) -> None:
        """Read the new lines, or all lines again if the files were cut because the run was resumed.

        Raises DataError for a damaged line, after reading the lines before it.
        """
        if not self.folder.is_dir():
            raise DataError(f"{self.folder} is gone: the folder was removed or moved", hint="move the folder back")
        if any(source.was_cut for source in self._sources.values()):
            self._start()
        self.sessions = read_sessions(self.folder)
        self.sft += self._sources[SFT].new()
        self.steps += self._sources[METRICS].new()
        self.validations += self._sources[VALIDATION].new()
        rollouts = self._sources[ROLLOUTS]
        for line in rollouts.new():
            try:
                self.pack.add(line)
            except (LookupError, TypeError, AttributeError, ValueError):
                raise rollouts.damaged("not a rollout in the format of this version") from None

    @property
    def version(self) -> object:
        """A value whose repr changes with the result of `data`."""
        return self._starts, len(self.sft), len(self.steps), len(self.validations), len(self.pack), self.sessions

    def stages(self, letter: str) -> list[Stage]:
        """Return the stages of the run that were validated; `letter` is A or B in a comparison."""
        return stages(self.validations, sft_steps=self.config.get("sft", {}).get("steps", 0), run=letter)

    def data(self) -> JsonObject:
        """Return the data of the run for the page, without rollout records."""
        return {
            "name": self.name,
            "facts": self._facts(),
            "alarms": [asdict(alarm) for alarm in alarms(self.steps, of_grpo(self.validations)).values()],
            "prompt": prompt.read_text("utf-8") if (prompt := self.folder / PROMPT).exists() else "",
            "charts": charts(self.steps, self.validations, self.sft),
            "config": self.config,
            **self.pack.index(),
        }

    def _start(self) -> None:
        self._starts += 1
        self._sources = {name: GrowingLines(self.folder / name) for name in (SFT, METRICS, VALIDATION, ROLLOUTS)}
        self.sft: list[JsonObject] = []
        self.steps: list[JsonObject] = []
        self.validations: list[JsonObject] = []
        self.pack = RolloutPack()

    def _facts(self) -> list[tuple[str, str]]:
        """Return (label, text) pairs about the run, such as ("Model", "Qwen/Qwen3-4B")."""
        config, train, data = self.config, self.config.get("train", {}), self.config.get("data", {})
        steps = f"{len(self.steps)} / {train.get('steps', '?')}"
        reward = self.steps[-1].get("reward/mean") if self.steps else None
        kept, enqueued, split = (
            sum(int(step.get(f"rollouts/{name}", 0)) for step in self.steps) for name in ("kept", "enqueued", "split")
        )
        made = f"made for the run, {data.get('style', '?')} ({config.get('lang', '?')})"
        recorded = self.sessions[-1].database if self.sessions else ""
        return [
            ("How it ended", how_it_ended(self.sessions) + ("" if self.steps else ", before its first step")),
            ("Steps", steps if reward is None else f"{steps}, reward {reward:.3f}"),
            ("Rollouts kept", f"{kept} / {enqueued}" + (f", {split} split" if split else "")),
            ("Model", model_of(config)),
            ("Questions", str(data.get("train_file") or made)),
            ("Database", recorded or str(config.get("database", {}).get("path") or "sample")),
            ("Judge", str(config.get("judge", {}).get("name", "?"))),
            ("Backend", str(config.get("backend", "?")).replace("auto", "local")),  # not "auto" in a run of verl
            *(_program(self.sessions) if self.sessions else []),
        ]


def _program(sessions: Sequence[RunSession]) -> list[tuple[str, str]]:
    last, seconds = sessions[-1], [session.seconds for session in sessions if session.seconds is not None]
    hours, rest = divmod(round(sum(seconds)), 3600)
    duration = f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
    commit, _, changes = (last.commit or "").partition("+")
    return [
        ("Started", sessions[0].started_at),
        ("Duration", duration if seconds else "?"),
        ("Commit", commit[:12] + (changes and f" +{changes}") or "installed without a checkout"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in last.versions.items())),
    ]


class RunSummary(NamedTuple):
    """A row of the list of runs: `texts` are the cells of `_COLUMNS`, `alarms` the alarms of the run as text."""

    folder: Path
    texts: list[str]
    alarms: list[str]

    @property
    def report(self) -> str | None:
        """The path of the run's report, relative to the folder of all runs; None without a report."""
        return f"{self.folder.name}/report.html" if (self.folder / "report.html").exists() else None


def run_summaries(runs_dir: Path) -> list[RunSummary]:
    folders = [folder for folder in runs_dir.iterdir() if is_run(folder)] if runs_dir.is_dir() else []
    summaries = [_summary(folder) for folder in folders]
    return sorted(summaries, key=lambda summary: summary.texts[-1], reverse=True)


def say_runs(summaries: Sequence[RunSummary], say: Callable[[str], None]) -> None:
    for summary in summaries:
        of = dict(zip(_COLUMNS, summary.texts, strict=True))
        say(f"{summary.folder}: {of['ended']}, {of['steps']} steps, reward {of['reward']}, started {of['started']}")
        say(f"  {of['model']}; accurate: {of['accurate']}; correct: {of['correct']}")
        for alarm in summary.alarms:
            say(f"  look at the rollouts: {alarm}")


def write_run_list(runs_dir: Path) -> Path:
    """Write index.html, a page with links to all reports, into `runs_dir`, and return its path."""
    target, nonce = runs_dir / "index.html", secrets.token_urlsafe(16)
    page = render_template(
        "runs.html.j2",
        nonce=nonce,
        policy=content_policy(nonce),
        style=asset("page.css"),
        folder=runs_dir.resolve(),
        columns=_COLUMNS,
        runs=(runs := run_summaries(runs_dir)),
        disclaimers=sorted({disclaimer_of(read_config(run.folder)["task"]) for run in runs}),
    )
    write_text(target, page)
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
