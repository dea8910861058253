"""Measure the cost of a grading and check that faults lose or change no verdict: python benchmarks/judge_calls.py

It runs against faulty_judge.py in a process of its own: (1) the time of a grading without faults, compared with a bare
httpx loop that posts prompts of the same length with the same concurrency; (2) as many gradings with a share of faults,
every verdict compared with what the server gave for that answer; (3) a second pass, which must send no request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from faulty_judge import FAULTS, grades_of

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.errors import JudgeError
from sql_agent.reward import Judge, JudgeCase, Verdict
from sql_agent.reward.factory import make_judge
from sql_agent.reward.judges import endpoint
from sql_agent.reward.judges.llm_judge import load_rubric
from sql_agent.schemas import QueryAnswer, QueryCall, Question, Usage

endpoint.ATTEMPTS = 10  # with six, one grading in 16,000 would be lost by chance
_ROWS = QueryAnswer(status="ok", columns=("uses",), records=(("pain; fever",),), count=1, from_tables=True)


def case(number: int) -> JudgeCase:
    """Return a judge's case whose answer has `number` in it."""
    question = Question(id=str(number), question="What is Paracetamol for?", answer="pain; fever")
    return JudgeCase(
        question=question,
        answer=f"pain and fever, case {number}",
        calls=(QueryCall(sql="SELECT uses FROM drugs_info", answer=_ROWS, seconds=0.0),),
    )


def judge_at(port: int, cache_dir: Path | None, concurrency: int) -> Judge:
    """Make an `llm` judge that calls 127.0.0.1:`port`; without `cache_dir` its cache is new."""
    settings = JudgeSettings(
        name="llm", timeout_s=2.0, concurrency=concurrency, cache_dir=cache_dir or Path(tempfile.mkdtemp())
    )
    return make_judge(settings, TeacherSettings(model="m", base_url=f"http://127.0.0.1:{port}/v1"))


async def grade_all(judge: Judge, count: int, at_once: int) -> tuple[list[Verdict | JudgeError], float]:
    """Grade the cases 0..count-1, `at_once` at a time; returns their verdicts or errors and the seconds it took."""
    slots = asyncio.Semaphore(at_once)

    async def grade(number: int) -> Verdict | JudgeError:
        async with slots:
            try:
                return await judge.grade(case(number))
            except JudgeError as error:
                return error

    started = time.perf_counter()
    results = await asyncio.gather(*(grade(number) for number in range(count)))
    return results, time.perf_counter() - started


async def bare_loop(port: int, count: int, at_once: int) -> float:
    """Return the seconds for `count` posts of prompts as long as the judge's, with the replies read as JSON."""
    slots = asyncio.Semaphore(at_once)
    filler = "x" * 2680
    async with httpx.AsyncClient(timeout=10, limits=httpx.Limits(max_connections=at_once)) as client:

        async def post(number: int) -> Any:
            async with slots:
                body = {"model": "m", "messages": [{"role": "user", "content": f"{filler} case {number}"}]}
                response = await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
                return response.json()["choices"][0]["message"]["content"]

        started = time.perf_counter()
        await asyncio.gather(*(post(number) for number in range(count)))
        return time.perf_counter() - started


def compare(results: list[Verdict | JudgeError]) -> tuple[int, int]:
    """Count the cases without a verdict and those whose verdict is not what the server gave."""
    rubric = load_rubric(None)
    lost = sum(isinstance(result, JudgeError) for result in results)
    wrong = 0
    for number, result in enumerate(results):
        if isinstance(result, Verdict):
            score, _ = rubric.score({name: grade["level"] for name, grade in grades_of(number).items()})
            wrong += result.score != score
    return lost, wrong


async def measure(port: int, count: int, at_once: int, faults: float) -> dict[str, Any]:
    """Run the three measurements with `count` gradings, `at_once` at a time, against the server at `port`."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as server:
        await server.post("/faults/0")
        bare_s = await bare_loop(port, count, at_once)
        plain, ours_s = await grade_all(judge_at(port, None, at_once), count, at_once)
        await server.post(f"/faults/{faults}")
        with tempfile.TemporaryDirectory() as folder:
            judge = judge_at(port, Path(folder), at_once)
            faulty, faulty_s = await grade_all(judge, count, 4 * at_once)
            seen = (await server.get("/stats")).json()
            again, again_s = await grade_all(judge_at(port, Path(folder), at_once), count, 4 * at_once)
            after = (await server.get("/stats")).json()
    spent = sum((v.usage for v in faulty if isinstance(v, Verdict)), Usage())
    return {
        "gradings": count,
        "concurrency": at_once,
        "bare_ms_a_call": 1000 * bare_s / count,
        "ours_ms_a_call": 1000 * ours_s / count,
        "ratio": ours_s / bare_s,
        "plain_lost_wrong": compare(plain),
        "faulty_seconds": faulty_s,
        "faulty_lost_wrong": compare(faulty),
        "faults": {name: seen[name] for name in FAULTS},
        "requests": seen["requests"],
        "requests_counted": spent.requests,
        "answered_and_sent_again": seen["repeated"],
        "most_at_once": seen["most_at_once"],
        "second_pass_requests": after["requests"] - seen["requests"],
        "second_pass_lost_wrong": compare(again),
        "second_pass_ms_a_call": 1000 * again_s / count,
    }


def main() -> None:
    """Run the comparison and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradings", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--faults", type=float, default=0.2)
    arguments = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("faulty_judge.py")), "--faults", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = int(server.stdout.readline())  # type: ignore[union-attr]
        time.sleep(1)
        result = asyncio.run(measure(port, arguments.gradings, arguments.concurrency, arguments.faults))
        print(json.dumps(result, indent=2))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
