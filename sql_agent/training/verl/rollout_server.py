"""Run rollouts that verl's processes request over HTTP; the server runs on the algorithm's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sql_agent.errors import SqlAgentError
from sql_agent.rollouts.scheduler import Mode, RetryingScheduler, RolloutRequest
from sql_agent.rollouts.trajectory import FinishedRollout, one_turn, untrained
from sql_agent.schemas import Question

_JSON = "application/json"
OpenScheduler = Callable[[list[str]], Awaitable[RetryingScheduler]]


class RolloutApp:
    """ASGI app with two routes, POST /endpoints and POST /rollouts.

    verl posts the URLs of the policy's endpoints once to /endpoints. `open_scheduler` gets these URLs and returns the
    scheduler of the rollouts. Then verl posts one question for each rollout to /rollouts. The reply has the rollout's
    token sequences (TokenSequence), reward (0.0–1.1), number of turns and duration in seconds, or the status 500 if the
    rollout was lost. With `split_turns` each turn becomes a token sequence (transition level).
    """

    def __init__(self, open_scheduler: OpenScheduler, *, split_turns: bool) -> None:
        self._open_scheduler = open_scheduler
        self._split_turns = split_turns
        self._scheduler: RetryingScheduler | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # FastAPI is not used, because it took a third of the time that the algorithm's process spent on a rollout.
        request = Request(scope, receive)
        try:
            response = await self._answer(request.url.path, orjson.loads(await request.body()))
        except SqlAgentError as error:
            response = Response(str(error), 500)
        except asyncio.CancelledError:  # without a reply, uvicorn would print a traceback
            response = Response("the run has ended", 503)
        await response(scope, receive, send)

    async def _answer(self, path: str, body: Any) -> Response:
        if path == "/endpoints":
            self._scheduler = await self._open_scheduler(body)
            return Response(b"{}", media_type=_JSON)
        if path != "/rollouts":
            return Response(f"there is no {path}", 404)
        if self._scheduler is None:
            return Response("the policy's endpoints are not known yet: send POST /endpoints first", 503)
        rollout = await self._scheduler.run(_request(body))
        return Response(orjson.dumps(self._reply(rollout)), media_type=_JSON)

    def _reply(self, rollout: FinishedRollout) -> dict[str, Any]:
        if rollout.record is None or rollout.reward is None:
            raise ValueError(f"rollout {rollout.rollout_id} was kept without a record or a reward")
        sequences = (
            [one_turn(turn) for turn in rollout.turns if turn.is_trained] if self._split_turns else rollout.sequences
        )
        return {
            # verl needs a sequence for each rollout. If no turn is trained, verl gets a sequence without a gradient.
            "sequences": sequences or [untrained(rollout.turns[0])],
            "reward": rollout.reward,
            "turns": rollout.record.turns,
            "seconds": rollout.record.seconds,
        }


def _request(body: dict[str, Any]) -> RolloutRequest:
    mode: Mode = "val" if body["mode"] == "val" else "train"
    return RolloutRequest(Question.model_validate_json(body["question"]), mode, body["step"], body["group"])
