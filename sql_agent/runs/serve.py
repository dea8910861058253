"""Serve the report of runs on 127.0.0.1, so that a browser follows a run that is still going on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sql_agent.errors import DataError
from sql_agent.runs.page import packed, render_page
from sql_agent.runs.report import page_data
from sql_agent.runs.run_reader import RunReader
from sql_agent.system.sockets import LOCAL_NAMES
from sql_agent.system.tokens import is_token, new_token


class ReportServer(ThreadingHTTPServer):
    """Answers with the page, its data as they are now, and the blocks of records.

    `url` is its address. It holds a random token, because every user of this machine can ask a port of it.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[RunReader], sock: socket.socket) -> None:
        """Serve `runs` at `sock`, a socket that is bound to 127.0.0.1."""
        super().__init__(sock.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock
        self.server_activate()
        self._runs = runs
        self._lock = threading.Lock()  # because each request has a thread of its own
        self._version = 0
        self._shown: object = None  # what the version stands for
        self._packed = b""
        self.token = new_token()
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/{self.token}/"

    def page(self) -> bytes:
        """Return the page, which asks for its data."""
        with self._lock:
            return render_page(page_data(self._runs), [], live=True).encode()

    def data(self) -> tuple[str, bytes]:
        """Return the version of the data, which changes when a run's files do, and the data compressed with gzip.

        A file that cannot be read is named in `problems` of the data, beside what was read of it before.
        """
        with self._lock:
            problems = [problem for run in self._runs if (problem := _refreshed(run))]
            shown = (*problems, *(run.version for run in self._runs))
            if self._shown != shown:
                self._shown, self._version = shown, self._version + 1
                self._packed = packed({**page_data(self._runs), "problems": problems})
            return f'"{self._version}"', self._packed

    def block(self, run: int, number: int) -> bytes:
        """Return a block of records, compressed with gzip. Raises IndexError when there is none."""
        with self._lock:
            return self._runs[run].pack.blocks()[number]


def _refreshed(run: RunReader) -> str | None:
    """Read what was appended to a run; returns what is wrong and what to do, where its files cannot be read."""
    try:
        run.refresh()
    except DataError as error:
        return f"{error.message}; next: {error.hint}"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    return None


_NO_TOKEN = b"Take the whole address that `sql-agent report --serve` has printed: it holds a token.\n"


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Host", "").rpartition(":")[0] not in LOCAL_NAMES:
            # A page of another site that resolves its name to 127.0.0.1 must not read a run.
            return self._send(HTTPStatus.FORBIDDEN, b"", "text/plain")
        token, _, name = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not is_token(token, self.server.token):
            return self._send(HTTPStatus.UNAUTHORIZED, _NO_TOKEN, "text/plain; charset=utf-8")
        return self._answer(name)

    def _answer(self, name: str) -> None:
        match name.split("/"):
            case [""]:
                return self._send(HTTPStatus.OK, self.server.page(), "text/html; charset=utf-8")
            case ["data"]:
                version, data = self.server.data()
                if self.headers.get("If-None-Match") == version:
                    return self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", version)
                return self._send(HTTPStatus.OK, data, "application/json", version, compressed=True)
            case ["block", name]:
                return self._block(name)
        return self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")

    def _block(self, name: str) -> None:
        try:
            run, number = map(int, name.split("-"))
            block = self.server.block(run, number)
        except (ValueError, IndexError):
            return self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")
        return self._send(HTTPStatus.OK, block, "text/plain; charset=utf-8", compressed=True)

    def _send(
        self, status: HTTPStatus, body: bytes, kind: str, version: str | None = None, *, compressed: bool = False
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")  # the address holds the token
        if version:
            self.send_header("ETag", version)
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it
        """Print nothing for a request."""
