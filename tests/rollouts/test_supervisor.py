"""A child process that dies is seen at once and replaced, unless it cannot run at all."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sql_agent.rollouts.runner import end_without_descriptors
from sql_agent.rollouts.supervisor import Ended, Supervisor


def sleep(note: Path) -> None:
    with note.open("a") as sink:
        sink.write(f"{os.getpid()}\n")
    time.sleep(60)


def leave(code: int) -> None:
    sys.exit(code)


def use_memory_up(part: str) -> None:
    if part == "thread":
        threading.Thread(target=use_memory_up, args=("job",)).start()
        time.sleep(60)
    if part == "torch":
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 20 bytes.")
    raise MemoryError


def use_descriptors_up(_: None) -> None:
    end_without_descriptors()  # there are some
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    opened = []
    while True:
        try:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            end_without_descriptors()
            raise


def start_and_sleep(note: Path, said: Path) -> None:
    supervisor = Supervisor({"sleep": sleep}, if_killed=said.write_text)  # which ends when this name goes
    supervisor.start("Sleeper", "sleep", note)
    time.sleep(60)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor(
        {"sleep": sleep, "leave": leave, "use memory up": use_memory_up, "use descriptors up": use_descriptors_up}
    )
    yield supervisor
    supervisor.stop()


async def ends(supervisor: Supervisor, count: int) -> list[Ended]:
    """Return the next `count` ends."""
    queue: asyncio.Queue[Ended] = asyncio.Queue()
    supervisor.watch(queue.put_nowait)
    try:
        return [await asyncio.wait_for(queue.get(), timeout=10) for _ in range(count)]
    finally:
        supervisor.unwatch()


async def started(note: Path, count: int) -> list[int]:
    """Return the ids of the first `count` processes that wrote into `note`."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pids = note.read_text().split() if note.exists() else []  # noqa: ASYNC240  a few bytes
        if len(pids) >= count:
            return [int(pid) for pid in pids]
        await asyncio.sleep(0.01)
    pytest.fail(f"{count} processes were to start, and only {len(pids)} did")


async def test_a_supervisor_and_a_child_that_are_stopped_end_at_once_all_the_same(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    for number in range(2):
        supervisor.start(f"Sleeper {number}", "sleep", tmp_path / "pids")
    killed, stopped = await started(tmp_path / "pids", 2)
    family = [psutil.Process(pid) for pid in (supervisor.pid, stopped)]
    for process in family:
        process.suspend()
    os.kill(killed, signal.SIGKILL)
    before = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - before < 2
    assert not any(process.is_running() for process in family)
    assert len((tmp_path / "pids").read_text().split()) == 2, "none took the place of another"


async def test_a_killed_child_is_reported_and_replaced_and_all_end_together(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    supervisor.start("Sleeper", "sleep", note)
    (first,) = await started(note, 1)
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    (ended,) = await ends(supervisor, 1)
    assert time.monotonic() - killed < 2
    assert ended == Ended("Sleeper", first, "was killed by SIGKILL", replaced=True)
    second = (await started(note, 2))[1]
    assert psutil.pid_exists(second)
    supervisor.stop()
    assert not psutil.pid_exists(second)


async def test_a_child_that_can_never_run_is_given_up_and_one_that_has_finished_is_not_replaced(
    supervisor: Supervisor,
) -> None:
    supervisor.start("Broken", "leave", 3)
    assert [e.replaced for e in await ends(supervisor, 5)] == [True] * 4 + [False]
    supervisor.start("Done", "leave", 0)
    (ended,) = await ends(supervisor, 1)
    assert ended.finished and not ended.replaced


@pytest.mark.parametrize("part", ["job", "thread", "torch"])
async def test_a_child_that_gets_no_more_memory_ends_and_is_replaced(supervisor: Supervisor, part: str) -> None:
    supervisor.start("Starved", "use memory up", part)
    (ended,) = await ends(supervisor, 1)
    assert ended.how == "got no more memory and ended" and ended.replaced


async def test_a_runner_without_file_descriptors_ends_and_is_replaced(supervisor: Supervisor) -> None:
    supervisor.start("Runner 0", "use descriptors up")
    (ended,) = await ends(supervisor, 1)
    assert ended.how == "got no more file descriptors and ended" and ended.replaced


async def test_what_was_started_ends_with_a_parent_that_is_killed_and_says_so(tmp_path: Path) -> None:
    note, said = tmp_path / "pids", tmp_path / "said"
    parent = multiprocessing.get_context("fork").Process(target=start_and_sleep, args=(note, said))
    parent.start()
    (child,) = await started(note, 1)
    parent.kill()
    parent.join()
    for _ in range(500):
        if said.exists() and not psutil.pid_exists(child):
            break
        await asyncio.sleep(0.01)
    assert said.read_text() == "was killed"
    assert not psutil.pid_exists(child)


async def test_a_parent_that_stops_what_it_started_was_not_killed(tmp_path: Path) -> None:
    said = tmp_path / "said"
    supervisor = Supervisor({"sleep": sleep}, if_killed=said.write_text)
    supervisor.start("Sleeper", "sleep", tmp_path / "pids")
    await started(tmp_path / "pids", 1)
    supervisor.stop()
    assert not said.exists()


async def test_a_child_that_cannot_be_forked_is_reported_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fork, here = os.fork, os.getpid()

    def fork_while_there_is_memory() -> int:
        if os.getpid() != here and (tmp_path / "full").exists():
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return fork()

    monkeypatch.setattr(os, "fork", fork_while_there_is_memory)
    note, supervisor = tmp_path / "pids", Supervisor({"sleep": sleep})
    try:
        supervisor.start("Sleeper", "sleep", note)
        (pid,) = await started(note, 1)
        (tmp_path / "full").touch()
        supervisor.start("Late", "sleep", note)
        how = "could not be started (Cannot allocate memory)"
        assert await ends(supervisor, 1) == [Ended("Late", 0, how, replaced=False)]
        assert psutil.pid_exists(pid)
    finally:
        supervisor.stop()


async def test_an_error_of_who_watches_loses_no_later_event(supervisor: Supervisor) -> None:
    seen: asyncio.Queue[Ended] = asyncio.Queue()
    errors: list[BaseException] = []

    def show(event: Ended) -> None:
        seen.put_nowait(event)
        raise OSError("the terminal is gone")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    supervisor.watch(show)
    for name in ("First", "Second"):
        supervisor.start(name, "leave", 0)
        event = await asyncio.wait_for(seen.get(), timeout=10)
        assert (event.name, event.how) == (name, "ended")
    supervisor.unwatch()
    assert len(errors) == 2


@pytest.mark.slow
async def test_a_child_that_the_kernel_kills_for_memory_is_reported_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = tmp_path / "kills"
    for module in ("rollouts.supervisor", "system.resources"):
        counter = f"sql_agent.{module}.memory_kills"
        monkeypatch.setattr(counter, lambda: len(list(tmp_path.glob("kill*"))))
    note, supervisor = tmp_path / "pids", Supervisor({"sleep": sleep})
    try:
        supervisor.start("Sleeper", "sleep", note)
        (pid,) = await started(note, 1)
        kills.touch()
        os.kill(pid, signal.SIGKILL)
        (ended,) = await ends(supervisor, 1)
        assert ended.how == "was killed by the kernel, because memory ran out"
    finally:
        supervisor.stop()
