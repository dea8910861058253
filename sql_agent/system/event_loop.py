"""Use uvloop without a fault that makes it close the socket of somebody else."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

import uvloop

_NEW_OBJECTS = 50_000  # that were made and not freed, before garbage is collected


def install_event_loop() -> None:
    """Let asyncio.run of this process, and of those forked from it, use an `EventLoop`, and collect garbage rarely."""
    # By default after 700 new objects, each time to find that most belong to tasks that wait.
    gc.set_threshold(_NEW_OBJECTS)
    asyncio.set_event_loop_policy(_Policy())


class EventLoop(uvloop.Loop):
    """Runs as uvloop does, and takes a socket away from its owner when it has closed it.

    When a connection over a given socket is cancelled, uvloop before 0.23 closes the file descriptor, and the socket
    closes it once more when it is collected. By then another connection can have the same number, for example one to a
    database's worker. aiohttp gives a socket for each connection, and a time-out cancels. litellm's proxy does not
    accept a newer uvloop yet.
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
