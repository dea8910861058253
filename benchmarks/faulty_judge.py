"""Serve an OpenAI-compatible judge that fails as real ones do: python benchmarks/faulty_judge.py [--faults 0.2]

It serves on 127.0.0.1. A share of its replies are faulty, in equal parts: a 429, a 500, nothing for 30 s, JSON that is
cut off, or prose. The others grade by the number in the answer ("case 17"), so that a caller can check that every
verdict belongs to its answer. It prints its port; GET /stats returns counts, POST /faults/SHARE changes the share.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import re
import socket
import time
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sql_agent.reward.judges.llm_judge import load_rubric

HANG_S = 30.0
FAULTS = ("429", "500", "hang", "cut", "half", "prose")
FIRST_LIMIT = 800  # tokens; only a reply within this limit is cut off
_CASE = re.compile(r"case (\d+)")
_RUBRIC = load_rubric(None)


def grades_of(number: int) -> dict[str, dict[str, str]]:
    """Return the grades of answer `number`; the numbers from 0 on give every combination of levels."""
    grades = {}
    for criterion in _RUBRIC.criterion:
        number, level = divmod(number, len(criterion.levels))
        grades[criterion.name] = {"reason": "as it is", "level": criterion.levels[level].name}
    return grades


def written(number: int, rng: random.Random) -> str:
    """The grades of answer `number` in one of the ways in which models write what was asked for."""
    grades = grades_of(number)
    text = json.dumps(grades)
    return rng.choice(
        (
            text,
            f"```json\n{text}\n```\nNote: graded as {{asked}}.",
            json.dumps({name: {**grade, "level": grade["level"].upper()} for name, grade in grades.items()}),
            json.dumps({**grades, "overall": "good"}),
        )
    )


def build_app(faults: float, seed: int, delay_s: float) -> FastAPI:
    """Build the server, with a share `faults` of faulty replies; it waits `delay_s` seconds before the others."""
    app = FastAPI()
    rng = random.Random(seed)
    seen: dict[str, Any] = {"at_once": 0}
    answered: set[str] = set()
    state = {"faults": faults}

    def forget() -> None:
        seen.update({"requests": 0, "most_at_once": 0, "repeated": 0, "times": [], **dict.fromkeys(FAULTS, 0)})

    forget()

    @app.post("/faults/{share}")
    async def set_faults(share: float) -> dict[str, float]:
        state["faults"] = share
        forget()
        return state

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        return seen

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Any:
        body = await request.json()
        seen["requests"] += 1
        seen["times"].append(time.time())
        seen["at_once"] += 1
        seen["most_at_once"] = max(seen["most_at_once"], seen["at_once"])
        try:
            return await reply(body, request)
        finally:
            seen["at_once"] -= 1

    async def hang(request: Request) -> None:
        """Wait for 30 s, or until the caller disconnects, so that an abandoned request is not counted any longer."""
        until = time.monotonic() + HANG_S
        while time.monotonic() < until and not await request.is_disconnected():  # noqa: ASYNC110  starlette has no event
            await asyncio.sleep(0.02)

    async def reply(body: dict[str, Any], request: Request) -> Any:
        number = int(_CASE.findall(body["messages"][0]["content"])[-1])
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        seen["repeated"] += key in answered
        fault = rng.choice(FAULTS) if rng.random() < state["faults"] else ""
        if fault == "cut" and body.get("max_tokens", 0) > FIRST_LIMIT:
            fault = ""
        if fault:
            seen[fault] += 1
        if fault == "429":
            return JSONResponse({"error": {"message": "slow down"}}, 429, headers={"retry-after": "0.1"})
        if fault == "500":
            return JSONResponse({"error": {"message": "broken"}}, 500)
        await (hang(request) if fault == "hang" else asyncio.sleep(delay_s))
        if fault != "hang":
            answered.add(key)
        right = json.dumps(grades_of(number))
        faulty = {"cut": right[: len(right) // 2], "half": right[: len(right) // 2], "prose": "I like this answer."}
        message = {"role": "assistant", "content": faulty[fault] if fault in faulty else written(number, rng)}
        usage = {"prompt_tokens": 500, "completion_tokens": 100, "total_tokens": 600}
        choice = {"index": 0, "message": message, "finish_reason": "length" if fault == "cut" else "stop"}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    return app


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay-s", type=float, default=0.0)
    arguments = parser.parse_args()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    app = build_app(arguments.faults, arguments.seed, arguments.delay_s)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[sock])


if __name__ == "__main__":
    main()
