"""Start the runners and LLM proxies of a run as processes of a supervisor, which replaces dead processes."""

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
from sql_agent.rollouts.llm_proxy import HEALTH, ServedModel, serve_proxy
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.runner import ConcurrentRunner
from sql_agent.rollouts.store_client import StoreClient
from sql_agent.rollouts.supervisor import Ended, Supervisor
from sql_agent.schemas import RolloutRecord
from sql_agent.system.servers import bind, new_token

_PROXY_START_S = 120.0
_SHOWN_CHARS = 100  # characters of a question in a line
_BACKLOG = 2048  # connections that wait for a proxy, also while it is being replaced


class RunProcesses:
    """Starts runner processes and up to `n_proxies` LLM proxies, and replaces dead processes, until `stop`.

    The constructor forks, so call it before torch is imported and before an event loop runs. The supervisor keeps the
    proxies' sockets open, so calls wait while a proxy is replaced. The proxies listen at the address `host` of this
    machine and require the bearer `proxy_token`. With `show_rollouts` each ended rollout is printed as one line. If
    this process dies without `stop`, the supervisor calls `if_killed` with the cause, such as "was killed".
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
        """Call `on_end` on the running event loop for each process that ends."""
        self._supervisor.watch(on_end)

    def unwatch(self) -> None:
        """Stop calling `on_end`."""
        self._supervisor.unwatch()

    def start_runners(self, store: StoreAddress) -> None:
        """Start all runners, which run the rollouts queued in `store`."""
        for index in range(self._n_runners):
            self._supervisor.start(f"Runner {index}", "runner", store)

    async def start_proxies(
        self, store: StoreAddress, models: Sequence[ServedModel], log_files: Sequence[Path]
    ) -> list[str]:
        """Start one proxy per log file, wait until all proxies answer, and return their URLs.

        Each proxy serves all `models` and writes its spans to `store`. Raises TrainingError when a proxy does not
        answer within two minutes.
        """
        for index, log_file in enumerate(log_files):
            self._supervisor.start(proxy_name(index), "proxy", (index, store, models, log_file))
        addresses = self._addresses[: len(log_files)]
        await asyncio.gather(*map(_until_healthy, addresses, log_files))
        return addresses

    def leave(self, how: str) -> None:
        """Ask all processes to stop without waiting, and call `if_killed` with `how`, the way this process ends."""
        self._supervisor.ask_to_stop()
        self._if_killed(how)

    def stop(self) -> None:
        """Stop all processes and wait for their end."""
        self._supervisor.stop()


def proxy_name(index: int) -> str:
    """Return the name of proxy `index` in messages."""
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
    """Print a rollout as one line."""
    reward = f"reward {record.reward.total:.3f}" if record.reward else f"dropped: {record.dropped}"
    question = " ".join(record.question.question.split())
    line = f"{mode:5} {len(record.calls)} queries, {reward}, {record.seconds:.1f} s: {question[:_SHOWN_CHARS]}"
    print(line, flush=True)  # one write, so that processes do not mix their lines
