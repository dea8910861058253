"""Run the runner and LLM proxy processes of a run, under a supervisor that replaces those that die."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import aiohttp

from sql_agent.config.settings import Settings
from sql_agent.errors import TrainingError
from sql_agent.rollouts.lit_agent import SqlLitAgent
from sql_agent.rollouts.llm_proxy import HEALTH, serve_proxy
from sql_agent.rollouts.proxy_calls import ServedModel
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.runner import ConcurrentRunner
from sql_agent.rollouts.store_client import open_store
from sql_agent.rollouts.supervisor import Ended, Supervisor
from sql_agent.schemas import RolloutRecord
from sql_agent.system.sockets import bind
from sql_agent.system.tokens import new_token

_PROXY_START_S = 120.0
_SHOWN_CHARS = 100  # of a question
_BACKLOG = 2048  # connections that wait for a proxy, also while it is being replaced


class RunProcesses:
    """Starts runners and up to `n_proxies` proxies, and replaces those that die, until `stop`.

    Create it before torch is imported and before an event loop runs, because it forks. The supervisor keeps the sockets
    of the proxies, so calls that come while a proxy is replaced wait for the new one. The proxies listen at the address
    `host` of this host and want the bearer `proxy_token`. With `show_rollouts` each rollout that ends is printed as one
    line. The supervisor calls `if_killed` when this process dies without `stop`, with how it ended.
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
            sock.close()  # the supervisor has its own

    def watch(self, on_end: Callable[[Ended], None]) -> None:
        """Call `on_end` on this event loop with each process that ends."""
        self._supervisor.watch(on_end)

    def unwatch(self) -> None:
        """End what `watch` began."""
        self._supervisor.unwatch()

    def start_runners(self, store: StoreAddress) -> None:
        """Start all runners; they take rollouts from `store`."""
        for index in range(self._n_runners):
            self._supervisor.start(f"Runner {index}", "runner", store)

    async def start_proxies(
        self, store: StoreAddress, models: Sequence[ServedModel], log_files: Sequence[Path]
    ) -> list[str]:
        """Start a proxy of all `models` for each of `log_files`, and return the proxies' addresses once they answer.

        The proxies record calls in `store`. Raises TrainingError when a proxy does not answer within two minutes.
        """
        for index, log_file in enumerate(log_files):
            self._supervisor.start(proxy_name(index), "proxy", (index, store, models, log_file))
        addresses = self._addresses[: len(log_files)]
        await asyncio.gather(*map(_until_healthy, addresses, log_files))
        return addresses

    def leave(self, how: str) -> None:
        """Let all of these processes end without waiting for that, and call `if_killed` with `how` this one ends."""
        self._supervisor.ask_to_stop()
        self._if_killed(how)

    def stop(self) -> None:
        """End all of these processes."""
        self._supervisor.stop()


def proxy_name(index: int) -> str:
    """Return the name under which the end of proxy `index` is reported."""
    return f"LLM proxy {index}"


async def _until_healthy(address: str, log_file: Path) -> None:
    try:
        timeout = aiohttp.ClientTimeout(total=_PROXY_START_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{address}{HEALTH}") as response:
            response.raise_for_status()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise TrainingError(
            f"the LLM proxy at {address} did not start: {type(error).__name__}: {error}", hint=f"see {log_file}"
        ) from error


def _run_runner(settings: Settings, store: StoreAddress, *, show_rollouts: bool) -> None:
    agent = SqlLitAgent(settings, _show_rollout if show_rollouts else None)

    async def run() -> None:
        # Without retries, because a request that is repeated unseen may lose the rollouts of the first answer.
        client = open_store(store, retry_delays=(), health_retry_delays=())
        await ConcurrentRunner(agent, client, concurrency=settings.runner.concurrency).run()

    asyncio.run(run())


def _run_proxy(
    sockets: Sequence[socket.socket], token: str, job: tuple[int, StoreAddress, Sequence[ServedModel], Path]
) -> None:
    index, store, models, log_file = job
    serve_proxy(sockets[index], store, models, log_file, token)


def _show_rollout(mode: str, record: RolloutRecord) -> None:
    """Print a rollout as one line."""
    reward = f"reward {record.reward.total:.3f}" if record.reward else f"dropped: {record.dropped}"
    question = " ".join(record.question.question.split())
    line = f"{mode:5} {len(record.calls)} queries, {reward}, {record.seconds:.1f} s: {question[:_SHOWN_CHARS]}"
    print(line, flush=True)  # one write, so that lines of several processes do not mix
