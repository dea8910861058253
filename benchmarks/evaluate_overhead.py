"""Measure what `sql-agent evaluate` adds to the bare model calls: python benchmarks/evaluate_overhead.py

A server in a process of its own answers every request after `--delay` seconds: first with a query, then with an answer.
In turn, `--rounds` times, the same requests (prompts, tool and turns) are sent at the same concurrency by bare httpx,
and by the evaluation with agent, tool, judge and records. It prints the seconds of both and the ratio of
their medians.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import httpx  # noqa: E402

from sql_agent.agent.rollout import ask_all  # noqa: E402
from sql_agent.agent.tools import QueryTool, function_tool  # noqa: E402
from sql_agent.config.endpoints import ModelEndpoint  # noqa: E402
from sql_agent.config.settings import load_settings, public_dump  # noqa: E402
from sql_agent.evaluation.folder import About, EvaluationFolder  # noqa: E402
from sql_agent.schemas import Question  # noqa: E402
from sql_agent.tasks.task import Task, load_task  # noqa: E402

SQL = "SELECT treatment FROM disease WHERE id = {}"


def main() -> None:
    """Serve, measure and print; with --serve be the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds until the model answers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.delay))
        return
    command = [sys.executable, __file__, "--serve", f"--delay={arguments.delay}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            compare(f"http://127.0.0.1:{int(server.stdout.readline())}/v1", arguments)
        finally:
            server.terminate()


def compare(base_url: str, arguments: argparse.Namespace) -> None:
    """Run both in turn and print their seconds."""
    settings = load_settings(flags={"judge": {"name": "facts"}, "data": {"natural_questions": 0}})
    task = load_task(settings.task)
    task.prepare(settings, print)
    gc.freeze()  # as the command does
    found = task.questions(settings, "test")
    questions = [found[i % len(found)].model_copy(update={"id": str(i)}) for i in range(arguments.questions)]
    endpoint = ModelEndpoint(base_url, "fake", 0.0)
    print(
        f"{len(questions)} questions of two turns, {arguments.concurrency} at once, {arguments.delay} s a reply, "
        f"{os.cpu_count()} cores; without any overhead "
        f"{2 * arguments.delay * -(-len(questions) // arguments.concurrency):.1f} s"
    )
    times: list[tuple[float, float]] = []
    for number in range(arguments.rounds):
        bare = asyncio.run(timed_bare(questions, task, endpoint, arguments.concurrency))
        full, processor = timed_evaluation(questions, task, endpoint, arguments.concurrency)
        times.append((bare, full))
        print(
            f"round {number + 1}: bare {bare:.2f} s, evaluation {full:.2f} s, ratio {full / bare:.3f}, "
            f"{1000 * processor / len(questions):.1f} ms of processor time a question"
        )
    bare, full = (statistics.median(side) for side in zip(*times, strict=True))
    print(f"median: bare {bare:.2f} s, evaluation {full:.2f} s, ratio {full / bare:.3f}")


async def timed_bare(questions: Sequence[Question], task: Task, endpoint: ModelEndpoint, concurrency: int) -> float:
    """Return the seconds of the model calls alone: the same conversations, posted by one httpx client."""
    waiting = iter(questions)
    with task.open_database(load_settings()) as database:
        prompt = task.instructions("en", database, load_settings())
        tool = function_tool(QueryTool(database), task.describe_tool(database))
    function = {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
    fixed = {"model": endpoint.model, "tools": [{"type": "function", "function": function}], "max_tokens": 128}
    # As many connections as the evaluation may open.
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None)) as client:

        async def work() -> None:
            for question in waiting:
                messages: list[Any] = [
                    {"role": "system", "content": prompt},
                    {"role": "user", "content": question.question},
                ]
                for _ in range(2):
                    body = {**fixed, "temperature": 0.0, "messages": messages}
                    response = await client.post(f"{endpoint.base_url}/chat/completions", json=body)
                    message = response.raise_for_status().json()["choices"][0]["message"]
                    messages.append(message)
                    if calls := message.get("tool_calls"):
                        messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "[]"})

        started = time.monotonic()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        return time.monotonic() - started


def timed_evaluation(
    questions: Sequence[Question], task: Task, endpoint: ModelEndpoint, concurrency: int
) -> tuple[float, float]:
    """Return the seconds of an evaluation from the first question to the last record, and its processor seconds."""
    settings = load_settings(flags={"judge": {"name": "facts"}})
    judge = task.judge(settings, alone=True)
    about = About(model="fake", judge=judge.identity, version="0", started="now", settings=public_dump(settings))
    with tempfile.TemporaryDirectory() as folder, task.databases(settings) as databases:
        records = EvaluationFolder.create(Path(folder), about, {"test": questions})
        waiting = [("test", question) for question in questions]
        started, processor = time.monotonic(), time.process_time()
        asyncio.run(
            ask_all(
                waiting, task, endpoint, databases, judge, settings, concurrency=concurrency, on_record=records.append
            )
        )
        seconds, processor = time.monotonic() - started, time.process_time() - processor
    return seconds, processor


async def serve(delay: float) -> None:
    """Answer chat completions after `delay` seconds on a free port, which is printed, until the process ends."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                body = json.loads(await reader.readexactly(length))
                await asyncio.sleep(delay)
                data = json.dumps(reply(body)).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Return a query to a question, and an answer to rows."""
    message: dict[str, Any] = {"role": "assistant", "content": "rest; fluids"}
    if body["messages"][-1]["role"] != "tool":
        arguments = json.dumps({"sql": SQL.format(1 + len(body["messages"][-1]["content"]) % 50)})
        function = {"name": "query_database_by_sql", "arguments": arguments}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"id": "call-1", "type": "function", "function": function}]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "created": 0, "model": "fake", "choices": [choice], "usage": usage}


if __name__ == "__main__":
    main()
