"""How this process runs and ends: event loop, garbage collection, interrupts, and children that end with it.

An interrupt is Ctrl-C, SIGTERM, or a terminal that is closed (SIGHUP).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import uvloop

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130  # exit code
_PR_SET_PDEATHSIG = 1  # option of prctl(2)
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides the cursor
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


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop this program, without SIGHUP if it is ignored, as under nohup.

    SIGINT stops the program even if it was ignored at the start, as in a background process of a script.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (is_kept and number is signal.SIGHUP)]


def say_interrupted() -> None:
    print("Interrupted.", file=sys.stderr, flush=True)


def end_interrupted(say: Callable[[], None] = lambda: None) -> NoReturn:
    """Call `say` and exit at once with code 130, without Python's own shutdown.

    Python's shutdown waits for threads, prints a traceback after another interrupt, and lets C++ abort in threads of
    torch. Child processes end by themselves after this process.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    try:
        if os.isatty(1):
            os.write(1, _SHOW_CURSOR)
        say()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # even if a stream is closed or in use
        os._exit(INTERRUPTED)


@contextmanager
def handled_signals(handler: Callable[[], None], *, again: Callable[[], None] = say_interrupted) -> Iterator[None]:
    """Call `handler` at the first stopping signal in the block, which needs a running event loop.

    A second signal, even after the block, calls `again` and exits at once with code 130. A second SIGHUP is ignored,
    because closing a terminal can send two. Without a signal, the block's end restores the earlier handlers.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in stopping_signals()}
    is_asked = False

    def once() -> None:
        nonlocal is_asked
        is_asked = True
        for number in before:
            loop.remove_signal_handler(number)
            is_repeated = number is signal.SIGHUP
            signal.signal(number, signal.SIG_IGN if is_repeated else lambda *_: end_interrupted(again))
        handler()

    def hang_up(*_: object) -> None:
        _drop_output()  # first, because a task may print to the closed terminal before `once` runs
        loop.call_soon_threadsafe(once)

    for number in before:
        if number is signal.SIGHUP:
            signal.signal(number, hang_up)
        else:
            loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            if not is_asked:
                loop.remove_signal_handler(number)
                signal.signal(number, handler_before)


def die_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when its parent dies. On systems other than Linux, do nothing."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def go_on(pid: int) -> None:
    """Send SIGCONT to the child `pid`, because a process suspended by a signal cannot handle SIGTERM."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _drop_output() -> None:
    """Discard stdout and stderr if their terminal or pipe is closed: a write would raise, and the run not be saved."""
    output = select.poll()
    for number in (1, 2):
        output.register(number, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number, state in output.poll(0):
        if state & (select.POLLHUP | select.POLLERR):
            os.dup2(nowhere, number)
    os.close(nowhere)
