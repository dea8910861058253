"""Run a training: store, proxy, runners and algorithm under agent-lightning's Trainer."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise litellm fetches a price list
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would not survive the fork of the runners

import agentlightning as agl
import uvloop

from sql_agent.agl.adapter import TokenIdAdapter
from sql_agent.agl.lit_agent import SqlLitAgent
from sql_agent.agl.llm_proxy import LocalLlmProxy
from sql_agent.agl.notifier import Notifier
from sql_agent.agl.run_role import RunRole
from sql_agent.agl.runner import ConcurrentRunner
from sql_agent.agl.store import RunStore
from sql_agent.backends.algorithm import TrainingAlgorithm
from sql_agent.backends.local.algorithm import LocalGrpo
from sql_agent.backends.verl.algorithm import VerlGrpo
from sql_agent.config.settings import Settings
from sql_agent.schemas import Question
from sql_agent.system.processes import die_with_parent_after_fork
from sql_agent.system.sockets import free_port
from sql_agent.tracking.console import Ui
from sql_agent.tracking.run_log import RunLog

_SPAN_BYTES = 256 << 20  # the default store keeps spans until they fill 70 % of the memory


def run_algorithm(
    settings: Settings,
    run_role: RunRole,
    log: RunLog,
    ui: Ui,
    *,
    train: Sequence[Question],
    val: Mapping[str, Sequence[Question]],
    resume: bool,
) -> TrainingAlgorithm:
    """Train on `train`, validate on each set of `val`, and return the algorithm after its end.

    The run has runner processes of its own unless `run_role` makes this process the algorithm alone. `error` and
    `interrupted` of the returned algorithm say how the run ended.
    """
    algorithm = (VerlGrpo if settings.backend == "verl" else LocalGrpo)(settings, log, ui, resume=resume)
    trainer = _trainer(settings, run_role, algorithm, log_file=log.folder / "proxy.log")
    trainer.fit(SqlLitAgent(settings), train, val_dataset=val)
    return algorithm


def run_runners(settings: Settings, run_role: RunRole, train: Sequence[Question]) -> None:
    """Run the rollouts of an algorithm in another process, until a signal comes."""
    _trainer(settings, run_role, None).fit(SqlLitAgent(settings), train)


def set_log_level(*, debug: bool) -> None:
    """Show errors only, or with `debug` the logs of every part."""
    agl.setup_logging("DEBUG" if debug else "ERROR")
    if not debug:
        # A filter, because uvicorn sets the level again whenever a server starts.
        logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)


def _trainer(
    settings: Settings, run_role: RunRole, algorithm: TrainingAlgorithm | None, *, log_file: Path = Path(os.devnull)
) -> agl.Trainer:
    die_with_parent_after_fork()
    uvloop.install()  # also for the runners and the proxies, which are forked from this process
    multiprocessing.set_start_method("fork", force=True)  # runners inherit the settings; torch is not loaded yet
    port = settings.runner.store_port or (free_port() if run_role.managed_store and run_role.role == "both" else None)
    notifier = Notifier(settings.runner.n_runners)
    runner = ConcurrentRunner(concurrency=settings.runner.concurrency, poll_s=settings.runner.poll_s, notifier=notifier)
    if run_role.store_address:
        store = agl.LightningStoreClient(run_role.store_address.rstrip("/"))
    else:
        store = RunStore(notifier, thread_safe=True, eviction_memory_threshold=_SPAN_BYTES)
    return agl.Trainer(
        algorithm=algorithm,
        store=store,
        tracer=runner.tracer,
        runner=runner,
        adapter=TokenIdAdapter(),
        llm_proxy=LocalLlmProxy(log_file),
        strategy=agl.ClientServerExecutionStrategy(
            role=run_role.role,
            server_host="127.0.0.1",
            server_port=port,
            n_runners=settings.runner.n_runners,
            managed_store=run_role.managed_store,
        ),
        n_runners=settings.runner.n_runners,
    )
