"""A connection that is cancelled closes its socket once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from sql_agent.system.process import EventLoop, install_event_loop


async def _fileno_after_cancellation() -> int:
    """Cancel a connection over a given socket before it is ready, and return what the socket holds then."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        loop = asyncio.get_running_loop()
        connecting = asyncio.create_task(loop.create_connection(asyncio.Protocol, sock=sock))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        return sock.detach()  # so that this test closes no file of others


@pytest.mark.parametrize(
    ("new_loop", "closes_twice"),
    [(EventLoop, False), (uvloop.Loop, True)],
    ids=["ours", "uvloop: when this fails it was mended, and EventLoop of sql_agent/system/process.py can go"],
)
def test_the_socket_of_a_cancelled_connection_is_closed_once(
    new_loop: Callable[[], asyncio.AbstractEventLoop], closes_twice: bool
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert (runner.run(_fileno_after_cancellation()) != -1) is closes_twice


def test_a_socket_that_was_refused_stays_its_owner_s_and_asyncio_run_takes_the_loop() -> None:
    async def refused() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EventLoop)
        with socket.socket() as sock:
            with pytest.raises(ValueError, match="can not be specified"):
                await loop.create_connection(asyncio.Protocol, "127.0.0.1", 1, sock=sock)
            assert sock.fileno() != -1

    before = asyncio.get_event_loop_policy()
    install_event_loop()
    try:
        asyncio.run(refused())
    finally:
        asyncio.set_event_loop_policy(before)
