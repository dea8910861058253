"""Run a few questions through store, runner and LLM proxy without training, and return every span."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import agentlightning as agl

from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.llm_proxy import ServedModel
from sql_agent.rollouts.processes import RunProcesses
from sql_agent.rollouts.run_role import RunRole
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.rollouts.scheduler import RolloutRequest, RolloutScheduler
from sql_agent.rollouts.store_protocol import AlgorithmStore
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.system.runtime import install_event_loop, slow_imports
from sql_agent.system.signals import end_interrupted, handled_signals, say_interrupted
from sql_agent.tasks.task import load_task
from sql_agent.training.run import opened_store

if TYPE_CHECKING:
    from sql_agent.training.local.policy_service import PolicyService

_SERVED_AS = "policy"


@dataclass(frozen=True)
class TracedRollout:
    """One rollout and its spans in the order of their sequence ids."""

    rollout: FinishedRollout
    spans: tuple[agl.Span, ...]


def trace_rollouts(
    settings: Settings, questions: Sequence[Question], endpoint: ModelEndpoint | None, folder: Path, ui: Ui
) -> list[TracedRollout]:
    """Run one validation rollout of each of `questions`, with the model at `endpoint` or else the local model.

    The proxy's output goes to `folder`. Raises TrainingError when a process does not start.
    """
    install_event_loop()
    processes = RunProcesses(settings, n_proxies=1)  # before torch, because it forks

    async def trace() -> list[TracedRollout]:
        # A signal ends the process at once: a thread may fine-tune for minutes, and there is nothing to save.
        with handled_signals(partial(end_interrupted, say_interrupted)):
            return await _trace(settings, questions, endpoint, folder, processes, ui)

    try:
        return asyncio.run(trace())
    finally:
        processes.stop()


async def _trace(  # noqa: PLR0917  as `trace_rollouts`, with the processes
    settings: Settings,
    questions: Sequence[Question],
    endpoint: ModelEndpoint | None,
    folder: Path,
    processes: RunProcesses,
    ui: Ui,
) -> list[TracedRollout]:
    async with (
        _served(settings, endpoint, ui) as model,
        opened_store(settings, RunRole("both", None), processes, ui.say) as (store, address),
    ):
        processes.start_runners(address)
        (proxy,) = await processes.start_proxies([model], [folder / "proxy.log"])
        route = agl.ProxyLLM(endpoint=proxy, model=_SERVED_AS, api_key=processes.proxy_token)
        resources = await store.add_resources(route_resources(route, sent_settings(settings, "dev")))
        scheduler = RolloutScheduler(
            store,
            [resources.resources_id],
            timeout_s=settings.runner.rollout_timeout_s,
            train_roles=settings.agent.train_roles,
        )
        watch = asyncio.create_task(scheduler.watch())
        try:
            with ui.status(f"Asking {len(questions)} questions"):
                requests = [RolloutRequest(question, "val", 0, question.id) for question in questions]
                rollouts = await asyncio.gather(*map(scheduler.run, requests))
            return [TracedRollout(rollout, await _spans(store, rollout)) for rollout in rollouts]
        finally:
            watch.cancel()


async def _spans(store: AlgorithmStore, rollout: FinishedRollout) -> tuple[agl.Span, ...]:
    return tuple(sorted(await store.spans_of(rollout.rollout_id), key=lambda span: span.sequence_id))


@asynccontextmanager
async def _served(settings: Settings, endpoint: ModelEndpoint | None, ui: Ui) -> AsyncIterator[ServedModel]:
    """Yield the model for the proxy; a local model is served inside the context."""
    if endpoint is not None:
        # Servers of others may refuse a request for token ids, which only training needs.
        yield ServedModel(_SERVED_AS, endpoint.base_url, endpoint.model, endpoint.api_key, has_token_ids=False)
        return
    service = await asyncio.to_thread(_serve, settings, ui)
    try:
        yield ServedModel(_SERVED_AS, service.base_url, api_key=service.api_key)
    finally:
        service.close()


def _serve(settings: Settings, ui: Ui) -> PolicyService:
    with slow_imports():
        from sql_agent.training.local.trainer import serve_for_questions  # noqa: PLC0415  imports torch

    with load_task(settings.task).databases(settings) as databases:
        return serve_for_questions(settings, databases, ui)
