"""Set up this process and end it: event loop, garbage collection, interrupts, child processes.

An interrupt is Ctrl-C, SIGTERM or SIGHUP, which a terminal sends when it is closed.
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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import uvloop

_REPEATED_AT = "SQLAGENT_REPEATED_AT"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130  # exit code
_PR_SET_PDEATHSIG = 1  # option of prctl(2)
_SHOW_CURSOR = b"\x1b[?25h"  # needed after a progress bar, which hides the cursor
_NEW_OBJECTS = 50_000  # number of new objects between two garbage collections


def install_event_loop() -> None:
    """Let asyncio.run use `EventLoop` in this process and its forks, and collect garbage less often."""
    # Collections after 700 new objects, the default, find little garbage: most objects belong to waiting tasks.
    gc.set_threshold(_NEW_OBJECTS)
    asyncio.set_event_loop_policy(_Policy())


class EventLoop(uvloop.Loop):
    """uvloop's event loop with a fix: after a failed connection, a file descriptor is not closed twice.

    When a connection over a given socket is cancelled, for example by aiohttp's time-out, uvloop before 0.23 closes the
    socket's file descriptor. The socket object closes the descriptor again when it is collected, but by then another
    connection may have got the same number. litellm's proxy needs an older uvloop.
    """

    async def create_connection(self, *args: Any, sock: socket.socket | None = None, **kwargs: Any) -> Any:
        """Connect as uvloop does. After a failure, detach `sock` from its file descriptor."""
        try:
            return await super().create_connection(*args, sock=sock, **kwargs)
        except (ValueError, TypeError):  # the arguments were wrong, so the socket was not touched
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
    """Exclude the objects that the block creates from garbage collection, such as modules, which are never freed.

    Collections took half of the time of importing agent-lightning. Later collections would write to, and so copy, the
    memory pages that runners share with their parent (see `gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def repeat_command(added: Sequence[str]) -> NoReturn:
    """Replace this process by a process with the same command and the further arguments `added`."""
    sys.stdout.flush()
    os.environ[_REPEATED_AT] = str(time.time())  # the process keeps its id and its start
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], *added])  # noqa: S606  no shell is wanted


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop this program: without SIGHUP if nohup made this process ignore SIGHUP.

    SIGINT stops the program even if a script started the process in the background, where SIGINT is ignored.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (is_kept and number is signal.SIGHUP)]


def say_interrupted() -> None:
    print("Interrupted.", file=sys.stderr, flush=True)


def end_interrupted(say: Callable[[], None] = lambda: None) -> NoReturn:
    """Call `say` and exit at once with code 130, without Python's own shutdown.

    Python's shutdown waits for threads, prints a traceback after another interrupt, and makes threads of torch abort.
    Child processes end by themselves after this process.
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
    """Call `handler` on the running event loop at the first stopping signal during the block.

    A second signal, even after the block, calls `again` and exits at once with code 130. A second SIGHUP is ignored,
    because closing a terminal can send two. If no signal came, the earlier handlers are restored after the block.
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
    """Let the kernel send SIGTERM to this process when its parent dies; does nothing except on Linux."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def process_start() -> float:
    """Return the time, in seconds since the epoch, at which this process started or was replaced; only on Linux."""
    if repeated := os.environ.get(_REPEATED_AT):
        return float(repeated)
    ticks = int(Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def go_on(pid: int) -> None:
    """Send SIGCONT to the child `pid`, because a suspended process cannot handle SIGTERM."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _drop_output() -> None:
    """Discard stdout and stderr if their terminal or pipe is closed, so that no failed write stops the saving."""
    output = select.poll()
    for number in (1, 2):
        output.register(number, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number, state in output.poll(0):
        if state & (select.POLLHUP | select.POLLERR):
            os.dup2(nowhere, number)
    os.close(nowhere)
