"""A server that cannot serve reports it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sql_agent.errors import TrainingError
from sql_agent.system.servers import served, uvicorn_server


async def never(*_: object) -> None:
    raise AssertionError


async def test_a_socket_that_cannot_be_served_is_an_error_and_not_waited_for() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        async with asyncio.timeout(10):
            with pytest.raises(TrainingError, match=r"cannot serve at 127\.0\.0\.1"):
                async with served(uvicorn_server(never, None), sock):
                    pass
