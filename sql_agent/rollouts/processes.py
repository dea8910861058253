"""Start the runners and LLM proxies of a run as processes, and mark the rollouts of dead processes as failed."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import agentlightning as agl
import aiohttp

from sql_agent.config.settings import Settings
from sql_agent.errors import TrainingError
from sql_agent.rollouts.lease import BEAT_S, LEASE_ROW
from sql_agent.rollouts.lit_agent import SqlLitAgent
from sql_agent.rollouts.llm_proxy import ServedModel, check_health, serve_proxy
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.runner import ConcurrentRunner, worker_id
from sql_agent.rollouts.store import QUEUED, STARTED, STORE_ERRORS, StoreClient, fail_rollouts
from sql_agent.rollouts.supervisor import Ended, Supervisor
from sql_agent.schemas import RolloutRecord
from sql_agent.system.servers import bind, new_token

_PROXY_START_S = 120.0
_SHOWN_CHARS = 100  # maximum number of characters of a question in the line about a rollout
_BACKLOG = 2048  # maximum number of connections that wait for a proxy, which may be replaced meanwhile
_FIRST_POLLS = 4  # number of polls after which a live runner must have been seen
_LATE_S = 1.0  # time in which a store handles the last request of a dead process
_SILENT_BEATS = 5  # number of missed heartbeats after which a runner counts as dead


class RunProcesses:
    """Starts runner processes and up to `n_proxies` LLM proxies, and replaces dead processes, until `stop`.

    The constructor forks, so call it before torch is imported and before an event loop runs. The supervisor keeps the
    sockets of the proxies open, so calls wait while a proxy is replaced. The proxies listen at the address `host` of
    this machine and require the bearer `proxy_token`. `show_rollouts` prints a line for each ended rollout. If this
    process dies without `stop`, the supervisor calls `if_killed` with the cause, such as "was killed".
    """

    def __init__(
        self,
        settings: Settings,
        *,
        n_proxies: int,
        host: str = "127.0.0.1",
        show_rollouts: bool = False,
        if_killed: Callable[[str], object] = lambda _how: None,
    ) -> None:
        self._n_runners = settings.runner.n_runners
        self._if_killed = if_killed
        self.proxy_token = new_token()
        sockets = [bind(host) for _ in range(n_proxies)]
        for sock in sockets:
            sock.listen(_BACKLOG)
        self._addresses = [f"http://{host}:{sock.getsockname()[1]}" for sock in sockets]
        run_runner = partial(_run_runner, settings, show_rollouts=show_rollouts)
        jobs = {"runner": run_runner, "proxy": partial(_run_proxy, sockets, self.proxy_token)}
        self._supervisor = Supervisor(jobs, if_killed=if_killed)
        for sock in sockets:
            sock.close()  # the supervisor has copies

    def watch(self, on_end: Callable[[Ended], None]) -> None:
        self._supervisor.watch(on_end)

    def unwatch(self) -> None:
        self._supervisor.unwatch()

    def start_runners(self, store: StoreAddress) -> None:
        for index in range(self._n_runners):
            self._supervisor.start(f"Runner {index}", "runner", store)

    async def start_proxies(
        self, store: StoreAddress, models: Sequence[ServedModel], log_files: Sequence[Path]
    ) -> list[str]:
        """Start a proxy for each log file, wait until all proxies answer, and return their URLs.

        Each proxy serves all `models` and writes its spans to `store`. Raises TrainingError when a proxy does not
        answer within two minutes.
        """
        for index, log_file in enumerate(log_files):
            self._supervisor.start(proxy_name(index), "proxy", (index, store, models, log_file))
        addresses = self._addresses[: len(log_files)]
        await asyncio.gather(*map(_until_healthy, addresses, log_files))
        return addresses

    def proxy_at(self, address: str) -> str:
        return proxy_name(self._addresses.index(address))

    def leave(self, how: str) -> None:
        """Ask all processes to stop, without waiting, and call `if_killed` with `how`, such as "was interrupted"."""
        self._supervisor.ask_to_stop()
        self._if_killed(how)

    def stop(self) -> None:
        self._supervisor.stop()


def proxy_name(index: int) -> str:
    return f"LLM proxy {index}"


async def _until_healthy(address: str, log_file: Path) -> None:
    try:
        await check_health(address, _PROXY_START_S)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise TrainingError(
            f"the LLM proxy at {address} did not start: {type(error).__name__}: {error}", hint=f"see {log_file}"
        ) from error


def _run_runner(settings: Settings, store: StoreAddress, *, show_rollouts: bool) -> None:
    agent = SqlLitAgent(settings, _show_rollout if show_rollouts else None)

    async def run() -> None:
        # Without retries, because a silent retry may lose the rollouts of the first answer.
        client = StoreClient(store, retry_delays=(), health_retry_delays=())
        await ConcurrentRunner(agent, client, concurrency=settings.runner.concurrency).run()

    asyncio.run(run())


def _run_proxy(
    sockets: Sequence[socket.socket], token: str, job: tuple[int, StoreAddress, Sequence[ServedModel], Path]
) -> None:
    index, store, models, log_file = job
    serve_proxy(sockets[index], store, models, log_file, token)


def _show_rollout(mode: str, record: RolloutRecord) -> None:
    reward = f"reward {record.reward.total:.3f}" if record.reward else f"dropped: {record.dropped}"
    question = " ".join(record.question.question.split())
    line = f"{mode:5} {len(record.calls)} queries, {reward}, {record.seconds:.1f} s: {question[:_SHOWN_CHARS]}"
    print(line, flush=True)  # one write, so that lines of different processes do not mix


class Recovery:
    """Handles each process that ends: reports the end with `say`, and marks the rollouts of the process as failed.

    If a process cannot be replaced, `fail` is called with the error. `routes` maps the store's resource ids to the
    names of proxies, and is empty before rollouts are scheduled. When a proxy dies, `route_died` is called with its
    resource ids and the reason.
    """

    def __init__(
        self, store: agl.LightningStore, say: Callable[[str], None], fail: Callable[[TrainingError], None]
    ) -> None:
        self.routes: dict[str, str] = {}
        self.route_died: Callable[[Collection[str], str], None] = lambda _resources, _reason: None
        self._store = store
        self._say = say
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, ended: Ended) -> None:
        if ended.finished:
            return
        if not ended.replaced:
            self._fail(
                TrainingError(
                    f"{ended.name} {ended.how} and cannot be replaced",
                    hint="repair the cause (see the lines above and proxy*.log in the run's folder), then start again",
                )
            )
            return
        routes = {resource for resource, proxy in self.routes.items() if proxy == ended.name}
        self.route_died(routes, f"{ended.name} {ended.how}")
        task = asyncio.create_task(self._recover(ended, routes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def watch_runners(self) -> None:
        """When the heartbeats of a runner stop, mark its rollouts as failed; watch until cancelled."""
        runners, polls, waits = SilentRunners(self._store), 0, False
        while True:
            with suppress(*STORE_ERRORS):  # the scheduler reports a lost store
                if silent := await runners.poll():
                    reason = f"{', '.join(silent)} gave no sign of life"
                    lost = await fail_rollouts(self._store, reason, of=lambda _, by: by in silent)
                    self._say(f"Runner {reason}; {_rerun(lost)}")
                polls += 1
                if waits != (polls >= _FIRST_POLLS and not runners.alive):
                    waits = not waits
                    self._say("No runner uses the store; the run waits." if waits else "A runner uses the store.")
            await asyncio.sleep(BEAT_S)

    async def _recover(self, ended: Ended, routes: Collection[str]) -> None:
        said = f"{ended.name} (process {ended.pid}) {ended.how}; another took its place"
        reason, worker = f"{ended.name} {ended.how}", worker_id(ended.pid)
        try:
            lost = await fail_rollouts(
                self._store, reason, of=lambda rollout, by: by == worker or rollout.resources_id in routes
            )
            self._say(f"{said}; {_rerun(lost)}")
            await asyncio.sleep(_LATE_S)
            await fail_rollouts(self._store, reason, of=lambda _, by: by == worker)
        except Exception as error:  # any error of the store; the time limit then ends the rollouts
            self._say(f"{said}, but its rollouts could not be looked up: {type(error).__name__}: {error}")


def _rerun(lost: int) -> str:
    return f"{lost} rollouts are run again." if lost else "no rollout was lost."


class SilentRunners:
    """Finds runners of `store` whose heartbeats have stopped; `alive` has the ids of the other runners."""

    def __init__(self, store: agl.LightningStore) -> None:
        self._store = store
        self._last: dict[str, float] | None = None
        self._missed: Counter[str] = Counter()
        self.alive: set[str] = set()

    async def poll(self) -> list[str]:
        """Return the ids of the runners that have just become silent; call `poll` every BEAT_S seconds.

        A runner is silent after five polls without a new heartbeat. Polls are counted instead of seconds, because after
        a pause of the store all runners would seem silent.
        """
        beats = {
            worker.worker_id: worker.last_heartbeat_time or 0.0
            for worker in await self._store.query_workers()
            if worker.worker_id != LEASE_ROW
        }
        if self._last is not None:
            for worker, time in beats.items():
                if time != self._last.get(worker):
                    self.alive.add(worker)
                    self._missed[worker] = 0
                else:
                    self._missed[worker] += 1
        self._last = beats
        silent = sorted(worker for worker in self.alive if self._missed[worker] >= _SILENT_BEATS)
        self.alive.difference_update(silent)
        return silent


async def cancel_stale_rollouts(store: agl.LightningStore) -> int:
    """Cancel the unfinished rollouts that an earlier algorithm left in `store`, and return how many there were."""
    stale = await store.query_rollouts(status_in=[*QUEUED, *STARTED])
    for rollout in stale:
        await store.update_rollout(rollout.rollout_id, status="cancelled")
    return len(stale)
