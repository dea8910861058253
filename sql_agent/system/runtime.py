"""Tune the Python runtime: uvloop with a fix for sockets, and fewer garbage collections; repeat a command."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import uvloop

_NEW_OBJECTS = 50_000  # new objects per garbage collection


def install_event_loop() -> None:
    """Let asyncio.run use `EventLoop` in this process and its forks, and collect garbage less often."""
    # With the default of 700 new objects, collections find little garbage: most objects belong to waiting tasks.
    gc.set_threshold(_NEW_OBJECTS)
    asyncio.set_event_loop_policy(_Policy())


class EventLoop(uvloop.Loop):
    """uvloop's event loop, fixed for a connection that fails over a given socket.

    When the connection is cancelled, for example by aiohttp's time-out, uvloop before 0.23 closes the socket's file
    descriptor. The socket object closes the same number again when it is collected, and by then another connection may
    use the number, for example one to a database worker. litellm's proxy does not accept a newer uvloop yet.
    """

    async def create_connection(self, *args: Any, sock: socket.socket | None = None, **kwargs: Any) -> Any:
        """Connect as uvloop does. After a failure `sock` is detached from its file descriptor."""
        try:
            return await super().create_connection(*args, sock=sock, **kwargs)
        except (ValueError, TypeError):  # wrong arguments: the socket was not touched
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

    Modules are never freed, so garbage collections need not examine their objects. The collections took half of the
    time of importing agent-lightning, and copied memory pages that runners share with their parent (see `gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def repeat_command(added: Sequence[str]) -> NoReturn:
    """Replace this process by its own command with the arguments `added` at the end."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], *added])  # noqa: S606  no shell is wanted
