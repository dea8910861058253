"""Run jobs in child processes, and replace each child that dies."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from sql_agent.system.process import STOPPING, die_with_parent, go_on
from sql_agent.system.resources import OUT_OF_MEMORY, end_when_ignored, ends_without_memory, how_killed, memory_kills

Job = Callable[[Any], object]

_EARLY_S = 5.0  # a child that dies within this time after its start dies early
_MAX_EARLY = 5  # after this many consecutive early deaths a child is not replaced
_GRACE_S = 3.0  # pause between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """The end of a child process: `how` it ended, such as "was killed by SIGKILL", and whether it was `replaced`."""

    name: str
    pid: int
    how: str
    replaced: bool

    @property
    def finished(self) -> bool:
        """Whether the job returned, so that the child needs no replacement."""
        return self.how == "ended"


@dataclass(frozen=True)
class _Order:
    name: str
    kind: str
    argument: Any


@dataclass(frozen=True)
class _Child:
    order: _Order
    process: BaseProcess
    started: float
    early: int  # number of consecutive early deaths before this child


class Supervisor:
    """Forks a supervisor process, which starts child processes and replaces dead children until `stop`.

    The supervisor is small and has one thread, so it can fork at any time; the trainer, with torch and threads, cannot.
    `jobs` are functions by name; a child calls one of them with the argument of `start`. A dead child is replaced by a
    child with the same argument, unless it was the fifth in a row that died right after its start. Only the parent
    process handles signals: supervisor and children ignore SIGINT and SIGHUP, and the supervisor ignores SIGTERM. If
    the parent dies without `stop`, the supervisor calls `if_killed` with the cause, such as "was killed", and ends all
    children and itself.
    """

    def __init__(self, jobs: Mapping[str, Job], *, if_killed: Callable[[str], object] = lambda _how: None) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, self._pipe, jobs, if_killed)
        self._process = context.Process(target=_supervise, args=arguments, name="supervisor")
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def start(self, name: str, kind: str, argument: Any = None) -> None:
        """Start a child that does the job `kind` with `argument`, which must be picklable."""
        self._pipe.send(_Order(name, kind, argument))

    def watch(self, on_end: Callable[[Ended], None]) -> None:
        """Call `on_end` on the running event loop for each child that ends, until `unwatch`."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            # By call_soon, so that an OSError of `on_end`, such as a closed terminal, is not taken for a closed pipe.
            try:
                while self._pipe.poll():
                    loop.call_soon(on_end, self._pipe.recv())
            except (EOFError, OSError):
                loop.remove_reader(self._pipe.fileno())
                died = Ended("the supervisor of runners and proxies", self._process.pid or 0, "died", replaced=False)
                loop.call_soon(on_end, died)

        loop.add_reader(self._pipe.fileno(), read)

    def unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def ask_to_stop(self) -> None:
        """Ask the supervisor to end all children and itself, without waiting."""
        with suppress(OSError, ValueError):  # the supervisor is dead, or the pipe closed
            self._pipe.send(None)
        go_on(self.pid)

    def stop(self) -> None:
        """End all children by SIGTERM, or 3 s later by SIGKILL, and wait for their end."""
        self.ask_to_stop()
        self._pipe.close()
        self._process.join(2 * _GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _supervise(
    pipe: Connection, other_end: Connection, jobs: Mapping[str, Job], if_killed: Callable[[str], object]
) -> None:
    other_end.close()
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    killed_for_memory = memory_kills()
    children: dict[int, _Child] = {}  # keyed by the sentinel that `wait` returns when a child ends
    try:
        _replace_those_that_die(pipe, jobs, children)
    except (EOFError, OSError):  # the parent process has died
        for_memory = ", because memory ran out" if memory_kills() > killed_for_memory else ""
        if_killed(f"was killed{for_memory}")
    finally:
        _end([child.process for child in children.values()])


def _replace_those_that_die(pipe: Connection, jobs: Mapping[str, Job], children: dict[int, _Child]) -> None:
    """Start a child for each order from `pipe`, and replace dead children, until None comes from `pipe`.

    Raises EOFError or OSError when the parent process closes the pipe.
    """
    killed_for_memory = memory_kills()

    def launch(order: _Order, early: int) -> None:
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_do, args=(pipe, jobs[order.kind], order.argument), name=order.name)
        try:
            process.start()
        except OSError as error:  # memory, processes or files ran out; other children continue
            how = f"could not be started ({error.strerror or error})"
            pipe.send(Ended(order.name, 0, how, replaced=False))
            return
        children[process.sentinel] = _Child(order, process, time.monotonic(), early)

    while True:
        # The pipe first, because after None no child is to be replaced.
        for ready in sorted(wait([pipe, *children]), key=lambda ready: ready is not pipe):
            if ready is pipe:
                order = pipe.recv()
                if order is None:
                    return
                launch(order, 0)
            elif isinstance(ready, int):
                child = children.pop(ready)
                how = _how_it_ended(child, killed_for_memory)
                early = child.early + 1 if time.monotonic() - child.started < _EARLY_S else 0
                killed_for_memory = memory_kills()
                replaced = how != "ended" and early < _MAX_EARLY
                pipe.send(Ended(child.order.name, child.process.pid or 0, how, replaced))
                if replaced:
                    launch(child.order, early)


def _do(pipe: Connection, job: Job, argument: Any) -> None:
    pipe.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    end_when_ignored()
    with ends_without_memory():
        job(argument)


def _how_it_ended(child: _Child, killed_for_memory: int) -> str:
    child.process.join()
    code = child.process.exitcode or 0
    if code < 0:
        return how_killed(code, killed_for_memory)
    if code == OUT_OF_MEMORY:
        return "got no more memory and ended"
    if code == errno.EMFILE:
        return "got no more file descriptors and ended"
    return f"died with exit code {code}" if code else "ended"


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
        go_on(process.pid or 0)
    deadline = time.monotonic() + _GRACE_S
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
