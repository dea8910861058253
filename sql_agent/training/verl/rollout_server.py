"""Serve rollouts to verl's processes over HTTP, on the algorithm's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sql_agent.errors import SqlAgentError, TrainingError
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.retrying_scheduler import RetryingScheduler
from sql_agent.rollouts.scheduler import Mode, RolloutRequest
from sql_agent.rollouts.trajectory import one_turn, untrained
from sql_agent.schemas import Question
from sql_agent.system.web_server import uvicorn_server
from sql_agent.training.serving.server import http_url

_JSON = "application/json"
OpenScheduler = Callable[[list[str]], Awaitable[RetryingScheduler]]


class RolloutServer:
    """Serves POST /endpoints once, with the URLs of the policy's endpoints, and POST /rollouts for every session.

    `open_scheduler` takes the URLs and returns the scheduler of the rollouts. With `split_turns` every turn is a
    sequence of its own (transition level). The reply to a session has the rollout's sequences (TokenSequence), its
    reward (0.0–1.1), its number of turns and its duration in seconds; the status is 500 when the rollout was lost.
    Requests need the bearer `token`, if any.
    """

    def __init__(
        self, sock: socket.socket, open_scheduler: OpenScheduler, *, split_turns: bool, token: str | None = None
    ) -> None:
        self._socket = sock
        self._open_scheduler = open_scheduler
        self._split_turns = split_turns
        self._scheduler: RetryingScheduler | None = None
        self._server = uvicorn_server(self._app, token)
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Return the server's URL, without a path."""
        return http_url(self._socket)

    async def start(self) -> None:
        """Start to serve, and return when requests are accepted. Raises TrainingError when that fails."""
        # serve() would replace the algorithm's signal handlers.
        self._serving = asyncio.create_task(self._server._serve(sockets=[self._socket]))
        while not self._server.started:
            if self._serving.done():
                why = self._serving.exception()
                raise TrainingError(
                    f"the rollout server did not start: {type(why).__name__}: {why}",
                    hint="check that verl.host is an address of this host",
                )
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stop serving; open requests are cut off."""
        if self._serving is not None:
            self._server.should_exit = self._server.force_exit = True
            await asyncio.wait([self._serving], timeout=5)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        # FastAPI took a third of the time that the algorithm's process spent on a rollout.
        request = Request(scope, receive)
        try:
            response = await self._answer(request.url.path, orjson.loads(await request.body()))
        except SqlAgentError as error:
            response = Response(str(error), 500)
        except asyncio.CancelledError:  # by `stop`; uvicorn would print a traceback
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
            # verl needs a sequence of each rollout; a rollout without trained turns gets one without gradient.
            "sequences": sequences or [untrained(rollout.turns[0])],
            "reward": rollout.reward,
            "turns": rollout.record.turns,
            "seconds": rollout.record.seconds,
        }


def _request(body: dict[str, Any]) -> RolloutRequest:
    mode: Mode = "val" if body["mode"] == "val" else "train"
    return RolloutRequest(Question.model_validate_json(body["question"]), mode, body["step"], body["group"])
