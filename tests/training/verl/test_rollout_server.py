"""verl's processes ask for rollouts over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sql_agent.errors import TrainingError
from sql_agent.system.sockets import bind_local
from sql_agent.training.verl.rollout_server import RolloutServer


async def test_a_server_that_cannot_serve_says_so_rather_than_wait_for_ever() -> None:
    async def never(_addresses: list[str]) -> Any:
        raise AssertionError

    sock = bind_local()
    sock.close()
    server = RolloutServer(sock, never, split_turns=False)
    async with asyncio.timeout(10):
        with pytest.raises(TrainingError, match="the rollout server did not start"):
            await server.start()
