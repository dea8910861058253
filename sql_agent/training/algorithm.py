"""Base class of both backends' algorithms: start rollouts, stop at a signal, keep the error of a failed run."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import agentlightning as agl

from sql_agent.config.settings import Settings
from sql_agent.errors import SqlAgentError, TrainingError
from sql_agent.rollouts.group_ranking import GroupBarrier
from sql_agent.rollouts.lease import End, LeaseHolder
from sql_agent.rollouts.preflight import check_triplet
from sql_agent.rollouts.processes import Recovery, RunProcesses, cancel_stale_rollouts
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.rollouts.scheduler import RetryingScheduler, RolloutScheduler, describe_stall
from sql_agent.rollouts.store import RunStore, StoreLostError, named_store_errors
from sql_agent.runs.console import Ui
from sql_agent.runs.resume import how_to_go_on
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.system.files import named_disk_errors
from sql_agent.system.process import handled_signals
from sql_agent.system.resources import named_memory_errors
from sql_agent.tasks.task import load_task
from sql_agent.training.step_monitor import StepMonitor

T = TypeVar("T")

_STALL_TIMEOUT_S = 5.0  # time limit for the store to report what a stalled run waits for


class TrainingAlgorithm(agl.Algorithm):  # type: ignore[misc]
    """Base class of an algorithm. A subclass implements `_run`, which checks `_stop` and `_monitor.failure` regularly.

    Before `run`, the caller sets `store_address`, at which runners and proxies reach the store. After `run`, `error` is
    the error that ended the run early, or None, and `interrupted` is true if a signal came.
    """

    stopping = "Stopping; interrupt again to stop at once."

    def __init__(self, settings: Settings, log: RunLog, ui: Ui, processes: RunProcesses, *, resume: bool) -> None:
        self._settings = settings
        self._log = log
        self._ui = ui
        self._processes = processes
        self._resume = resume
        self._recovery: Recovery
        self._stop: asyncio.Event
        self._monitor: StepMonitor
        self._scheduler: RolloutScheduler | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._lease: LeaseHolder | None = None
        self._stall_shown_at = time.monotonic()
        self.store_address: StoreAddress
        self.error: SqlAgentError | None = None
        self.interrupted = False

    def say_of_store(self, text: str) -> None:
        """Print the message `text` about the store, unless the run was interrupted or has failed."""
        if not (self.interrupted or self.error or self._monitor.failure):
            self._ui.say(text)

    async def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        """Train on `train_dataset` (a sequence of Question), and validate on `val_dataset` before and after training.

        `val_dataset` maps the name of each validation set to its questions. A SqlAgentError is stored in `error`.
        """
        val: Mapping[str, Sequence[Question]] = val_dataset
        end: End = "failed"
        self._stop = asyncio.Event()
        self._monitor = StepMonitor(self._settings, self._log, self._ui, val=val)
        self._recovery = Recovery(self.get_store(), self._ui.say, self._fail)
        self._processes.watch(self._recovery.handle)
        with handled_signals(self._interrupt, again=lambda: self._processes.leave("was interrupted")):
            try:
                with named_disk_errors(lambda: how_to_go_on(self._log.folder)), named_memory_errors():
                    await self._unless_stopped(self._claim_store())
                    if not self._stop.is_set():
                        await self._run(train_dataset, [q for questions in val.values() for q in questions])
                end = "finished"
            except SqlAgentError as error:
                failure = self._monitor.failure or error  # `error` may be a consequence of the monitor's failure
                # An interrupt that reaches all processes may end the store before the run.
                if not (self.interrupted and isinstance(failure, StoreLostError)):
                    self.error = failure
            finally:
                self._processes.unwatch()
                for watch in self._watches:
                    watch.cancel()
                if self._lease is not None:
                    await self._lease.release("was interrupted" if self.interrupted and not self.error else end)

    async def _claim_store(self) -> None:
        """Acquire the lease of an external store, because two algorithms would cancel each other's rollouts.

        Raises TrainingError when another running algorithm has the lease.
        """
        store = self.get_store()
        if isinstance(store, RunStore):  # the run's own store needs no lease
            return

        def fail(other: str) -> None:
            self._fail(
                TrainingError(
                    f"the run {other} took the store at {self.store_address.url} while this run was suspended",
                    hint="continue this run with --resume after the other run has ended, or with another store",
                )
            )

        self._lease = LeaseHolder(store, uuid4().hex, self._log.folder.name, on_loss=fail)
        with named_store_errors():
            other = await self._lease.acquire()
        if other is not None:
            raise TrainingError(
                f"the run {other} already uses the store at {self.store_address.url}",
                hint="wait until that run has ended, or start another store on another port",
            )

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `waiting`, or None as soon as a signal comes: other processes may never answer."""
        task, stopped = asyncio.create_task(waiting), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @abstractmethod
    async def _run(self, train: Sequence[Question], val: Sequence[Question]) -> None:
        """Train until the last step or a signal. Raises SqlAgentError when the run fails."""

    def _route(self, proxy: str, model: str) -> agl.ProxyLLM:
        return agl.ProxyLLM(endpoint=proxy, model=model, api_key=self._processes.proxy_token)

    async def _start_rollouts(self, routes: Sequence[agl.ProxyLLM]) -> RetryingScheduler:
        """Test each of `routes` with one call to the policy, then return a scheduler that spreads rollouts over them.

        Raises PreflightError when the store does not return the triplet (prompt and response) of a test call, and
        StoreLostError when the store does not answer.
        """
        store, adapter = self.get_store(), self.get_adapter()
        sent = sent_settings(self._settings, self._log.folder.name)
        with named_store_errors():
            # The routes are tested concurrently, because the first call of a proxy takes seconds.
            triplets = await asyncio.gather(*(check_triplet(store, route, adapter) for route in routes))
            self._ui.say(
                f"Preflight: a call through each of {len(routes)} routes to the policy came back as a triplet "
                f"({len(triplets[0].prompt['token_ids'])} prompt and {len(triplets[0].response['token_ids'])} "
                "response ids)"
            )
            if stale := await cancel_stale_rollouts(store):
                self._ui.say(f"Cancelled {stale} rollouts that an earlier algorithm left in the store")
            resources = [(await store.add_resources(route_resources(route, sent))).resources_id for route in routes]
        self._scheduler = RolloutScheduler(store, adapter, resources, self._settings)
        names = [self._processes.proxy_at(route.endpoint) for route in routes]
        self._recovery.routes = dict(zip(resources, names, strict=True))
        self._recovery.route_died = self._scheduler.route_died
        watch = asyncio.create_task(self._scheduler.watch())
        watch.add_done_callback(self._watch_ended)
        self._watches = [watch]
        if self._lease is not None:
            with named_store_errors():
                await self._lease.publish(resources[0])
            self._watches.append(asyncio.create_task(self._recovery.watch_runners()))
        judge = load_task(self._settings.task).group_judge(self._settings)
        barrier = GroupBarrier(judge, self._settings.train.group_size) if judge else None
        return RetryingScheduler(self._scheduler, self._monitor, self._settings.runner.rollout_retries, barrier)

    async def _show_stall(self) -> None:
        """Print what the run waits for, if no rollout started or ended in the last `runner.stall_s` seconds."""
        quiet_s = time.monotonic() - max(self._monitor.last_event, self._stall_shown_at)
        if quiet_s > self._settings.runner.stall_s and (stall := await self._unless_stopped(self._stall())):
            self._stall_shown_at = time.monotonic()
            self._ui.say(stall)

    async def _stall(self) -> str | None:
        """Return a message about what the unfinished rollouts wait for, or None without unfinished rollouts."""
        waiting = self._scheduler.waiting if self._scheduler else {}
        try:
            async with asyncio.timeout(_STALL_TIMEOUT_S):
                with named_store_errors():
                    return await describe_stall(self.get_store(), waiting) if waiting else None
        except TimeoutError:
            return f"No rollout has ended for a while, and the store did not say why within {_STALL_TIMEOUT_S:.0f} s."

    def _watch_ended(self, watch: asyncio.Task[None]) -> None:
        if not watch.cancelled() and (error := watch.exception()):
            if not isinstance(error, TrainingError):
                error = TrainingError(
                    f"the task that watches the rollouts failed: {error!r}",
                    hint=f"continue with {how_to_go_on(self._log.folder)}; if the task fails again, report a bug",
                )
            self._fail(error)

    def _fail(self, error: TrainingError) -> None:
        """End the run early with `error`; if the run has already failed, keep its first error."""
        self._monitor.failure = self._monitor.failure or error

    def _interrupt(self) -> None:
        self.interrupted = True
        self._ui.say(self.stopping)
        self._stop.set()
