"""Tune the Python runtime: uvloop without one of its faults, and fewer garbage collections."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

_NEW_OBJECTS = 50_000  # created and not freed, before garbage is collected


def install_event_loop() -> None:
    """Make asyncio.run use an `EventLoop` in this process and its forks, and collect garbage rarely."""
    # The default is 700 new objects; each collection then finds that most belong to waiting tasks.
    gc.set_threshold(_NEW_OBJECTS)
    asyncio.set_event_loop_policy(_Policy())


class EventLoop(uvloop.Loop):
    """uvloop's event loop, which also detaches a given socket when it has closed the socket's file descriptor.

    When a connection over a given socket is cancelled, uvloop before 0.23 closes the file descriptor, and the socket
    object closes the same number again when it is collected. By then another connection may use that number, for
    example one to a database worker. aiohttp passes a socket for each connection, and a time-out cancels. litellm's
    proxy does not accept a newer uvloop yet.
    """

    async def create_connection(self, *args: Any, sock: socket.socket | None = None, **kwargs: Any) -> Any:
        """Connect as uvloop does; when that fails, `sock` no longer owns its file descriptor."""
        try:
            return await super().create_connection(*args, sock=sock, **kwargs)
        except (ValueError, TypeError):  # of arguments, before the socket was touched
            raise
        except BaseException:
            if sock is not None:
                sock.detach()
            raise


class _Policy(uvloop.EventLoopPolicy):
    def _loop_factory(self) -> EventLoop:
        return EventLoop()


@contextmanager
def slow_imports() -> Iterator[None]:
    """Exclude every object that is created inside the context, such as imported modules, from garbage collection.

    Modules stay until the process ends. Collections that examine their objects took half of the time of importing
    agent-lightning, and would copy the memory pages that the runners share with their parent (see `gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
