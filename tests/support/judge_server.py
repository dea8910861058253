"""A judging model behind real HTTP that does what a script says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

KEY = "sk-very-secret-key"


class Server(ThreadingHTTPServer):
    """Answers with the next of `script`: a text, a status code, seconds to hang before `default`, or a whole body.

    A body with an "error" comes with status 400. Without a script it answers with what `plays` makes of the prompt, if
    that is set, else with `default`.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script: list[str | int | float | dict[str, Any]] = []
        self.default: str | dict[str, Any] = ""
        self.plays: Callable[[str], str | int | dict[str, Any]] | None = None
        self.headers: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def prompt(self) -> str:
        return str(self.requests[-1]["messages"][0]["content"])

    def otherwise(self, body: dict[str, Any]) -> str | int | dict[str, Any]:
        return self.plays(str(body["messages"][0]["content"])) if self.plays else self.default


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.times.append(time.monotonic())
        step = self.server.script.pop(0) if self.server.script else self.server.otherwise(body)
        if isinstance(step, float):
            time.sleep(step)
            step = self.server.default
        status, payload = (step, {"error": {"message": f"no, {KEY}"}}) if isinstance(step, int) else (200, step)
        if isinstance(payload, dict) and "error" in payload and status == 200:
            status = 400
        data = json.dumps(completion(payload) if isinstance(payload, str) else payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # a client that has given up waiting
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def completion(text: str, *, finish_reason: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": refusal}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@contextmanager
def serving_as_teacher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Serve inside the context, as the teacher model that the environment names."""
    with serving() as server:
        monkeypatch.setenv("TEACHER_MODEL", "m")
        monkeypatch.setenv("TEACHER_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("TEACHER_API_KEY", "k")
        yield server
