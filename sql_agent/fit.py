"""The run itself: store, proxy, runners and algorithm under agent-lightning's Trainer."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise litellm fetches a price list
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would not survive the fork of the runners

import agentlightning as agl
import uvloop

from sql_agent.backends.local.algorithm import LocalGrpo
from sql_agent.backends.stoppable import StoppableAlgorithm
from sql_agent.backends.verl.algorithm import VerlGrpo
from sql_agent.bell import Bell
from sql_agent.config import Settings
from sql_agent.lit_agent import SqlLitAgent
from sql_agent.processes import die_with_parent_after_fork
from sql_agent.proxy import LoggedProxy
from sql_agent.records import Question
from sql_agent.run_store import RunStore
from sql_agent.runlog import RunLog
from sql_agent.runner import ConcurrentRunner
from sql_agent.sockets import free_port
from sql_agent.store import Place
from sql_agent.triplets import CallTriplets
from sql_agent.ui import Ui

_SPAN_BYTES = 256 << 20


def run_algorithm(
    settings: Settings,
    place: Place,
    log: RunLog,
    ui: Ui,
    *,
    train: Sequence[Question],
    val: Sequence[Question],
    resume: bool,
) -> StoppableAlgorithm:
    """Train, with runners of its own unless `place` says that they are elsewhere; returns the ended algorithm."""
    algorithm = (VerlGrpo if settings.backend == "verl" else LocalGrpo)(settings, log, ui, resume=resume)
    trainer = _trainer(settings, place, algorithm, log_file=log.folder / "proxy.log")
    trainer.fit(SqlLitAgent(settings), train, val_dataset=val)
    return algorithm


def run_runners(settings: Settings, place: Place, train: Sequence[Question]) -> None:
    """Run the rollouts of an algorithm that runs elsewhere, until a signal comes."""
    _trainer(settings, place, None).fit(SqlLitAgent(settings), train)


def set_log_level(*, debug: bool) -> None:
    """Show errors only, or with `debug` the logs of every part."""
    agl.setup_logging("DEBUG" if debug else "ERROR")
    if not debug:
        # uvicorn sets its own level whenever a server starts; a filter is the one thing that it leaves alone.
        logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)


def _trainer(
    settings: Settings, place: Place, algorithm: StoppableAlgorithm | None, *, log_file: Path = Path(os.devnull)
) -> agl.Trainer:
    die_with_parent_after_fork()
    uvloop.install()  # for the store, the runners and the proxies alike, which are all forked from here
    multiprocessing.set_start_method("fork", force=True)  # runners inherit the settings; torch is not loaded yet
    port = settings.runner.store_port or (free_port() if place.managed_store and place.role == "both" else None)
    bell = Bell(settings.runner.n_runners)
    runner = ConcurrentRunner(concurrency=settings.runner.concurrency, poll_s=settings.runner.poll_s, bell=bell)
    if place.store_address:
        store = agl.LightningStoreClient(place.store_address.rstrip("/"))
    else:
        # The default store keeps spans until they fill 70 % of the memory.
        store = RunStore(bell, thread_safe=True, eviction_memory_threshold=_SPAN_BYTES)
    return agl.Trainer(
        algorithm=algorithm,
        store=store,
        tracer=runner.tracer,
        runner=runner,
        adapter=CallTriplets(),
        llm_proxy=LoggedProxy(log_file),
        strategy=agl.ClientServerExecutionStrategy(
            role=place.role,
            server_host="127.0.0.1",
            server_port=port,
            n_runners=settings.runner.n_runners,
            managed_store=place.managed_store,
        ),
        n_runners=settings.runner.n_runners,
    )
