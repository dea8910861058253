"""Run rollouts of a few questions without training, through a store, runners and an LLM proxy; return their spans."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import agentlightning as agl

from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.processes import RunProcesses
from sql_agent.rollouts.proxy_calls import ServedModel
from sql_agent.rollouts.run_role import RunRole
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.rollouts.scheduler import RolloutRequest, RolloutScheduler
from sql_agent.rollouts.spans import TokenIdAdapter
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.system.process import install_event_loop
from sql_agent.training.run import opened_store

_SERVED_AS = "policy"
TracedRollout = tuple[FinishedRollout, list[agl.Span]]


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
    server can return. The proxy's log is proxy.log in `folder`. Raises TrainingError when a process does not start.
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
            scheduler = RolloutScheduler(
                store,
                TokenIdAdapter(),
                [resources.resources_id],
                timeout_s=settings.runner.rollout_timeout_s,
                train_roles=settings.agent.train_roles,
            )
            watch = asyncio.create_task(scheduler.watch())
            try:
                with ui.status(f"Asking {len(questions)} questions"):
                    requests = [RolloutRequest(question, "val", 0, question.id) for question in questions]
                    rollouts = await asyncio.gather(*map(scheduler.run, requests))
                spans = [await store.spans_of(rollout.rollout_id) for rollout in rollouts]
            finally:
                watch.cancel()
        in_order = [sorted(of_rollout, key=lambda span: span.sequence_id) for of_rollout in spans]
        return list(zip(rollouts, in_order, strict=True))

    try:
        with model as endpoint:
            return asyncio.run(trace(endpoint))
    finally:
        processes.stop()
