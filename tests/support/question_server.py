"""Models behind real HTTP that query the database for each question they know and then answer it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.chat_server import tool_call
from tests.support.judge_server import completion


class QuestionServer(ThreadingHTTPServer):
    """`knows` gives by model and question the SQL and the answer; to others a model answers "no idea", unasked.

    `thoughts` gives by question what a model thinks before each reply.
    The first `failing[question]` requests of a question get status 500. `delay_s` passes before each reply.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.knows: dict[tuple[str, str], tuple[str, str]] = {}
        self.thoughts: dict[str, str] = {}
        self.failing: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.delay_s = 0.0
        self.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def reply(self, body: dict[str, Any]) -> dict[str, Any] | None:
        messages = body["messages"]
        asked = next(m["content"] for m in messages if m["role"] == "user")
        question = re.sub(r"\n(Values: |取值：).*", "", asked)  # without the values that the question names
        if self.failing[question]:
            self.failing[question] -= 1
            return None
        sql, answer = self.knows.get((body["model"], question), ("", "no idea"))
        calls = sql and messages[-1]["role"] == "user"
        self.asked[question] += not calls
        reply = tool_call(sql) if calls else completion(answer)
        reply["choices"][0]["message"]["reasoning_content"] = self.thoughts.get(question)
        return reply


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, QuestionServer)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.server.delay_s)
        reply = self.server.reply(body)
        data = json.dumps(reply or {"error": {"message": "overloaded"}}).encode()
        self.send_response(200 if reply else 500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering() -> Iterator[QuestionServer]:
    server = QuestionServer()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
