"""Write the report of a run, or of two runs compared, as an offline HTML page, or serve it during the run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sql_agent.errors import DataError
from sql_agent.runs.charts import validation_table
from sql_agent.runs.pages import packed, page_response, render_live_report, render_report, web_app
from sql_agent.runs.run_lines import JsonObject
from sql_agent.runs.run_reader import RunReader
from sql_agent.system.files import atomic_write


def write_report(run_dir: Path, compared: Path | None = None) -> Path:
    """Write `report.html` into `run_dir`, or `comparison.html` if there is a run `compared`, and return its path.

    An interrupted run may have missing files or a last line without an end. Raises DataError when a folder contains no
    run, and ConfigError when a run's task cannot be loaded.
    """
    runs = [RunReader(folder) for folder in (run_dir, compared) if folder is not None]
    target = run_dir / ("report.html" if compared is None else "comparison.html")
    with atomic_write(target) as unfinished:
        page = render_report(_page_data(runs), [run.pack.blocks() for run in runs])
        unfinished.write_text(page, encoding="utf-8")
    return target


class LiveReport:
    """Serves a report that is updated when the files of `runs` change."""

    def __init__(self, runs: Sequence[RunReader]) -> None:
        self._runs = runs
        self._lock = threading.Lock()  # because starlette calls the endpoints in threads
        self._shown: object = None  # the versions of the runs in `_packed`
        self._etag = 0
        self._packed = b""

    def app(self, token: str) -> ASGIApp:
        """Return the app: the page, its data, and the blocks of rollout records."""
        routes = [
            Route("/", self._get_page),
            Route("/data", self._get_data),
            Route("/block/{run:int}-{number:int}", self._get_block),
        ]
        return web_app(routes, token=token, host="127.0.0.1")

    def _get_page(self, _request: Request) -> Response:
        return page_response(lambda nonce: render_live_report(self._runs[0].disclaimer, nonce))

    def _get_data(self, request: Request) -> Response:
        """Return all data except the rollout records; `problems` names the files that cannot be read."""
        with self._lock:
            problems = [problem for run in self._runs if (problem := _refreshed(run))]
            shown = (*problems, *(run.version for run in self._runs))
            if self._shown != shown:
                self._shown, self._etag = shown, self._etag + 1
                self._packed = packed({**_page_data(self._runs), "problems": problems})
            etag, data = f'"{self._etag}"', self._packed
        if request.headers.get("If-None-Match") == etag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
        return _gzipped(data, "application/json", etag)

    def _get_block(self, request: Request) -> Response:
        run, number = request.path_params["run"], request.path_params["number"]
        with self._lock:
            blocks = self._runs[run].pack.blocks() if run < len(self._runs) else []
        if number >= len(blocks):
            return Response(status_code=HTTPStatus.NOT_FOUND)
        return _gzipped(blocks[number], "text/plain")


def _page_data(runs: Sequence[RunReader]) -> JsonObject:
    """Return the data of the page, without the rollout records."""
    tables = [asdict(validation_table(run.validations)) for run in runs]
    if len(runs) > 1:
        for table, run in zip(tables, runs, strict=True):
            table["title"] += f": {run.name}"
    return {
        "title": "Run " + " · ".join(run.name for run in runs),
        "disclaimer": runs[0].disclaimer,
        "tables": tables,
        "runs": [run.data() for run in runs],
    }


def _refreshed(run: RunReader) -> str | None:
    """Read what was appended to a run; return the problem and the remedy when a file cannot be read."""
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
