"""The role "runner": run rollouts for an algorithm in another terminal or on another host."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.rollouts.lease import BEAT_S, Lease, read_lease
from sql_agent.rollouts.llm_proxy import check_health
from sql_agent.rollouts.processes import Recovery, RunProcesses
from sql_agent.rollouts.run_role import StoreAddress, watched_store
from sql_agent.rollouts.run_settings import RESOURCE, check_same, settings_here, text_of
from sql_agent.rollouts.store import STORE_ERRORS, StoreClient
from sql_agent.system.process import handled_signals
from sql_agent.tasks.task import load_task

_SILENT_S = 4.0  # time without a heartbeat of the algorithm after which the runner prints that it waits
_PROXY_TIMEOUT_S = 10.0


class RunnerRole:
    """Runs rollouts for the algorithm that uses `store`, until the algorithm ends or this process gets a signal.

    `own` are the settings of this host, `say` prints a line, and `interrupted` is true after a signal. The runner waits
    while the store or the algorithm is silent, because the network may recover and the run may be resumed.
    """

    def __init__(self, processes: RunProcesses, own: Settings, store: StoreAddress, say: Callable[[str], None]) -> None:
        self._processes = processes
        self._own = own
        self._address = store
        self._say = say
        # Without retries, because `run` polls the store every BEAT_S seconds.
        self._store = StoreClient(store, retry_delays=(), health_retry_delays=(), request_timeout=3.0)
        self._ended = asyncio.Event()
        self._error: TrainingError | None = None
        self.interrupted = False
        self._state = ""  # the last printed line of `_say_once`
        self._met: set[str] = set()  # sessions (starts of an algorithm) that were seen running
        self._served = ""  # session whose settings were checked
        self._last: tuple[str, float] | None = None  # session, and time of its last heartbeat on the store's clock
        self._changed = 0.0  # when `_last` changed, on this host's monotonic clock
        self._alive = False  # whether a second heartbeat was seen

    async def run(self) -> None:
        """Run rollouts until the algorithm has ended or this process gets a signal.

        Raises ConfigError if this host's settings, judge or database differ from the algorithm's, TrainingError if a
        dead runner cannot be replaced, and the errors of `Task.prepare`.
        """
        self._processes.watch(Recovery(self._store, self._say, self._fail).handle)
        try:
            with handled_signals(self._interrupt), watched_store(self._address.url, "this runner", self._say):
                while not self._ended.is_set():
                    await self._look()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._ended.wait(), BEAT_S)
        finally:
            self._processes.unwatch()
            await self._store.close()
        if self._error is not None:
            raise self._error

    async def _look(self) -> None:
        try:
            found = await read_lease(self._store)
        except STORE_ERRORS:  # `watched_store` reports a lasting outage
            return
        if found is None or (found[0].end is not None and found[0].session not in self._met):
            self._say_once(f"Waiting for an algorithm that uses the store at {self._address.url}")
        else:
            await self._follow(*found)

    async def _follow(self, algorithm: Lease, beat: float) -> None:
        """Print the state of `algorithm`, last seen at `beat` (Unix time); start runners once its policy answers."""
        if algorithm.end is not None:
            self._say(f"The run {algorithm.run} {algorithm.end}; this runner leaves")
            self._ended.set()
            return
        if algorithm.resources_id is not None:
            self._met.add(algorithm.session)
        if self._last != (algorithm.session, beat):
            self._alive = self._last is not None
            self._last, self._changed = (algorithm.session, beat), time.monotonic()
        if time.monotonic() - self._changed > _SILENT_S:
            self._say_once(f"No sign of the run {algorithm.run} for {_SILENT_S:.0f} s; this runner waits")
            return
        if not self._alive:
            return  # a single heartbeat may be old
        if algorithm.resources_id is None:
            self._say_once(f"The run {algorithm.run} starts; this runner waits")
            return
        if self._served != algorithm.session:
            resources = await self._store.get_resources_by_id(algorithm.resources_id)  # also None if the store is down
            if resources is None:
                self._say_once(
                    f"The store at {self._address.url} lacks the settings of the run {algorithm.run}; this runner waits"
                )
                return
            await self._begin(algorithm, resources.resources)
        self._say_once(f"Running the rollouts of {algorithm.run} …")

    async def _begin(self, algorithm: Lease, resources: Mapping[str, Any]) -> None:
        """Check that this host has the task, judge and database of the algorithm's process; start the runners."""
        sent, here = settings_here(text_of(resources), self._own)

        def check() -> None:
            task = load_task(here.task)
            task.prepare(here, self._say)
            task.open_database(here).close()
            check_same(sent, here)

        await asyncio.to_thread(check)
        await _check_proxy(resources[RESOURCE])
        if not self._served:
            self._processes.start_runners(self._address)
        self._served = algorithm.session
        number = here.runner.n_runners
        self._say(
            f"Settings taken from the run {algorithm.run}: task {here.task}, language {here.lang}, judge "
            f"{here.judge.name}; {number} runner processes"
        )

    def _say_once(self, text: str) -> None:
        if text != self._state:
            self._state = text
            self._say(text)

    def _interrupt(self) -> None:
        self.interrupted = True
        self._say("This runner leaves; other runners run its unfinished rollouts again")
        self._ended.set()

    def _fail(self, error: TrainingError) -> None:
        self._error = self._error or error
        self._ended.set()


async def _check_proxy(route: Any) -> None:
    """Raise ConfigError unless the LLM proxy of `route` can be reached from this host."""
    address = str(route.endpoint)
    try:
        await check_health(address, _PROXY_TIMEOUT_S)
    except (aiohttp.ClientError, OSError) as error:
        local = urlsplit(address).hostname in {"127.0.0.1", "localhost", "::1"}
        raise ConfigError(
            f"the algorithm's LLM proxy at {address} does not answer from here: {type(error).__name__}",
            hint="other hosts cannot reach that address: start the algorithm with the store's address in your network, "
            "--external-store-address http://ADDRESS:PORT"
            if local
            else "let the firewall of the algorithm's host admit this host",
        ) from error
