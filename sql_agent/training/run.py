"""Run a training: open the store, start runner and proxy processes, and run the backend's algorithm."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a forked process lacks the tokenizer's threads

import agentlightning as agl

from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.rollouts.llm_proxy import ServedModel
from sql_agent.rollouts.processes import RunProcesses
from sql_agent.rollouts.run_role import RunRole, StoreAddress, watched_store
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.rollouts.runner_role import RunnerRole
from sql_agent.rollouts.scheduler import RolloutRequest, RolloutScheduler
from sql_agent.rollouts.spans import TokenIdAdapter
from sql_agent.rollouts.store import RunStore, StoreClient, served_store
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.system.process import install_event_loop
from sql_agent.system.servers import address_towards, new_token
from sql_agent.training.algorithm import TrainingAlgorithm
from sql_agent.training.local.training_loop import LocalGrpo
from sql_agent.training.verl.run_verl import VerlGrpo

_CANCEL_TIMEOUT_S = 3.0
_SERVED_AS = "policy"
TracedRollout = tuple[FinishedRollout, list[agl.Span]]


def run_algorithm(
    settings: Settings,
    run_role: RunRole,
    log: RunLog,
    ui: Ui,
    *,
    train: Sequence[Question],
    val: Mapping[str, Sequence[Question]],
    resume: bool,
    if_killed: Callable[[str], object],
) -> TrainingAlgorithm:
    """Train on the questions `train`, validate on the validation sets `val` (by name), and return the algorithm.

    The attributes `error` and `interrupted` of the algorithm say how the run ended. If this process is killed, the
    supervisor calls `if_killed` with a description of the kill.
    """
    install_event_loop()  # inherited by the runners and the proxies, which are forked from this process
    verl = settings.backend == "verl"
    # Runners on other hosts must reach the proxies.
    host = address_towards(run_role.store.url) if run_role.store else "127.0.0.1"
    n_proxies = settings.runner.n_proxies if verl else 1
    processes = RunProcesses(settings, n_proxies=n_proxies, host=host, if_killed=if_killed)

    async def train_with_store(algorithm: TrainingAlgorithm) -> None:
        async with opened_store(settings, run_role, processes, algorithm.say_of_store) as (store, address):
            algorithm.set_store(store)
            algorithm.store_address = address
            if run_role.role == "both":
                processes.start_runners(address)
            await algorithm.run(train, val)

    try:
        algorithm = (VerlGrpo if verl else LocalGrpo)(settings, log, ui, processes, resume=resume)
        adapter = TokenIdAdapter()
        algorithm.set_adapter(adapter)  # the variable keeps the adapter alive; the algorithm has a weak reference
        asyncio.run(train_with_store(algorithm))
    finally:
        processes.stop()
    return algorithm


def run_runners(settings: Settings, store: StoreAddress, ui: Ui, *, quiet: bool) -> bool:
    """Run the rollouts that an algorithm on this or another host enqueues in `store`.

    Returns when the algorithm has ended (False) or a signal has come (True). Prints a line for each rollout unless
    `quiet`. Raises the errors of `RunnerRole.run`.
    """
    install_event_loop()
    processes = RunProcesses(settings, n_proxies=0, show_rollouts=not quiet)

    async def serve() -> bool:
        role = RunnerRole(processes, settings, store, ui.say)
        await role.run()
        return role.interrupted

    try:
        return asyncio.run(serve())
    finally:
        processes.stop()


def set_log_level(*, debug: bool) -> None:
    """Make agent-lightning log only errors, or with `debug` everything."""
    agl.setup_logging("DEBUG" if debug else "ERROR")
    if not debug:
        # This logger reports every failed request to the store; `watched_store` reports a lost store only once.
        logging.getLogger("agentlightning.store.client").setLevel(logging.CRITICAL)
        # A filter, because uvicorn resets the logger's level whenever a server starts.
        logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)


@asynccontextmanager
async def opened_store(
    settings: Settings, run_role: RunRole, processes: RunProcesses, say: Callable[[str], None]
) -> AsyncIterator[tuple[agl.LightningStore, StoreAddress]]:
    """Serve a store for this run inside the context, or connect to the external store that `run_role` names.

    Yields the store and its address. `say` gets a line for the user when the external store does not respond.
    """
    if run_role.store:
        client = StoreClient(run_role.store)
        try:
            with watched_store(run_role.store.url, "the run", say):
                yield client, run_role.store
        finally:
            # A task that ends cancels its rollout in the store; after `close`, this would open a new HTTP session.
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in others:
                    task.cancel()
                await asyncio.wait(others, timeout=_CANCEL_TIMEOUT_S)
            await client.close()
        return
    own, token = RunStore(), new_token()
    async with served_store(own, token=token) as url:
        yield own, StoreAddress(url, token)


def trace_rollouts(
    settings: Settings,
    questions: Sequence[Question],
    model: AbstractContextManager[ModelEndpoint],
    folder: Path,
    ui: Ui,
    *,
    with_token_ids: bool,
) -> list[TracedRollout]:
    """Run one validation rollout for each question, and return each rollout with its spans sorted by sequence id.

    The context `model` is entered after the supervisor process was forked, because `model` may import torch, and a
    process with torch must not be forked. With `with_token_ids` the proxy requests token ids, which only our policy
    server can return. The proxy's log is proxy.log in `folder`.
    """
    install_event_loop()
    processes = RunProcesses(settings, n_proxies=1)

    async def trace(endpoint: ModelEndpoint) -> list[TracedRollout]:
        async with opened_store(settings, RunRole("both", None), processes, ui.say) as (store, address):
            processes.start_runners(address)
            served = ServedModel(
                _SERVED_AS, endpoint.base_url, endpoint.model, endpoint.api_key, has_token_ids=with_token_ids
            )
            (proxy,) = await processes.start_proxies(address, [served], [folder / "proxy.log"])
            route = agl.ProxyLLM(endpoint=proxy, model=_SERVED_AS, api_key=processes.proxy_token)
            resources = await store.add_resources(route_resources(route, sent_settings(settings, "dev")))
            scheduler = RolloutScheduler(store, TokenIdAdapter(), [resources.resources_id], settings)
            watch = asyncio.create_task(scheduler.watch())
            try:
                with ui.status(f"Asking {len(questions)} questions"):
                    requests = [RolloutRequest(question, "val", 0, question.id) for question in questions]
                    rollouts = await asyncio.gather(*map(scheduler.run, requests))
                spans = [await store.query_spans(rollout.rollout_id, "latest") for rollout in rollouts]
            finally:
                watch.cancel()
        in_order = [sorted(of_rollout, key=lambda span: span.sequence_id) for of_rollout in spans]
        return list(zip(rollouts, in_order, strict=True))

    try:
        with model as endpoint:
            return asyncio.run(trace(endpoint))
    finally:
        processes.stop()
