"""Train a model: plan, run, finish: sql-agent train"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sql_agent.cli.parser import add_task_flags, help_text
from sql_agent.cli.train_output import say_finished, say_unfinished, show_trace, try_report
from sql_agent.cli.train_plan import CI_STEPS, Plan, flags_of, make_plan
from sql_agent.config.settings import load_settings
from sql_agent.errors import SqlAgentError
from sql_agent.rollouts.run_role import RunRole, StoreAddress, check_store
from sql_agent.runs.console import Ui
from sql_agent.runs.resume import check_inputs, question_digest
from sql_agent.runs.run_info import recorded_session
from sql_agent.runs.run_log import RunLog
from sql_agent.runs.trackers import Trackers
from sql_agent.system.memory import named_memory_errors
from sql_agent.system.runtime import slow_imports
from sql_agent.system.signals import INTERRUPTED
from sql_agent.tasks.task import database_digest

_DESCRIPTION = """\
Train a small model to answer medical questions by querying a database with SQL.

Without arguments the embedded SmolLM2-135M-Instruct is trained on the sample
database, which is made when it is missing. A run writes to runs/NAME: a report,
every rollout, metrics and checkpoints."""

_EXAMPLES = """
  sql-agent train --ci-fast                  one step, to see that it works
  sql-agent train --ci run_name=first        some minutes, kept in runs/first
  sql-agent train --ci --resume run_name=first
  sql-agent train --model Qwen/Qwen2.5-0.5B-Instruct --backend verl --n-gpus 2
  sql-agent train train.lr=1e-5 agent.max_turns=3 judge.name=llm

AGL_CURRENT_ROLE=algorithm|runner|both and AGL_MANAGED_STORE=0|1 are read from
the environment or .env; they split a run over terminals that share a store."""


def main(argv: Sequence[str] | None = None) -> int:
    """Plan, run and finish a training; return the exit code (0, or 130 after an interrupt)."""
    arguments = parse_arguments(argv)
    role = RunRole.from_environment(arguments.external_store_address)
    ui = Ui()
    if role.store:
        store = check_store(role.store)
        if role.role == "runner":
            return _serve_rollouts(arguments, store, ui)
        role = replace(role, store=store)
    plan = make_plan(arguments, ui)
    if arguments.dev:
        show_trace(plan, ui)
        return 0
    inputs = _inputs(plan)
    if arguments.resume:
        check_inputs(plan.settings.runs_dir / plan.settings.run_name, inputs)
    log = RunLog.resume(plan.settings) if arguments.resume else RunLog.create(plan.settings)
    if log.notice:
        ui.say(log.notice)
    try:
        _run(plan, log, role, ui, arguments, inputs=inputs)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    except SqlAgentError:
        say_unfinished(log, plan.settings, ui, how="failed")
        raise
    finally:
        report = try_report(log, ui)
        if log.trackers:
            log.trackers.close()
    if interrupted:
        say_unfinished(log, plan.settings, ui, how="was interrupted")
        return INTERRUPTED
    say_finished(plan, log, ui, report)
    return 0


def _run(
    plan: Plan, log: RunLog, role: RunRole, ui: Ui, arguments: argparse.Namespace, *, inputs: Mapping[str, str]
) -> None:
    """Train as `plan` says. Raises the SqlAgentError that ended the run, or KeyboardInterrupt after a signal."""
    # agent-lightning takes seconds to import: the errors of the plan come first.
    with named_memory_errors(), slow_imports():
        from sql_agent.training import run  # noqa: PLC0415

    run.set_log_level(debug=arguments.debug)
    ui.say(f"Run {log.folder}: {plan.head[0]}")
    for line in plan.head[1:]:
        ui.say(line)
    settings = plan.settings
    with recorded_session(log.folder, plan.task.database_shown(settings), inputs), named_memory_errors():
        log.trackers = Trackers(settings, log.folder, ui.say)
        algorithm = run.run_algorithm(
            settings,
            role,
            log,
            ui,
            train=plan.train,
            val=plan.val,
            resume=arguments.resume,
            if_killed=lambda how: say_unfinished(log, settings, ui, how=how),
        )
        if algorithm.error is not None:
            raise algorithm.error
        if algorithm.interrupted:
            raise KeyboardInterrupt


def _inputs(plan: Plan) -> dict[str, str]:
    """Return the digests of what a resumed run must find unchanged."""
    inputs = {"the training questions": question_digest(plan.train)}
    if digest := database_digest(plan.task, plan.settings):
        inputs["the database"] = digest
    return inputs


def _serve_rollouts(arguments: argparse.Namespace, store: StoreAddress, ui: Ui) -> int:
    """Run the rollouts of an algorithm in another terminal that uses `store`; return the exit code."""
    # The algorithm sends the settings that decide a rollout; those of this command line concern this host only.
    own = load_settings(arguments.overrides, config_file=arguments.config, flags=flags_of(arguments))
    with slow_imports():
        from sql_agent.training import run  # noqa: PLC0415  slow, and the checks come first

    run.set_log_level(debug=arguments.debug)
    return INTERRUPTED if run.run_runners(own, store, ui, quiet=arguments.quiet) else 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line of `sql-agent train`."""
    parser = argparse.ArgumentParser(
        prog="sql-agent train",
        usage="sql-agent train [--ci | --ci-fast] [FLAGS] [section.key=value ...]",
        **help_text(_DESCRIPTION, _EXAMPLES),
    )
    parser.add_argument("overrides", nargs="*", metavar="section.key=value",
                        help="any setting, stronger than a flag; `sql-agent settings` lists them")  # fmt: skip
    _add_run_flags(parser)
    add_task_flags(parser)
    data = parser.add_argument_group("data")
    data.add_argument("--lang", choices=("en", "zh"), help="language of the sample and of the prompts (default: en)")
    data.add_argument("--train-file", type=Path, metavar="FILE", help="questions to train on, parquet or JSONL")
    data.add_argument("--val-file", type=Path, metavar="FILE", help="questions to validate on, parquet or JSONL")
    data.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that names the columns of these files")
    _add_model_flags(parser)
    gpus = parser.add_argument_group("GPUs (backend verl)")
    gpus.add_argument("--device", choices=("gpu", "npu"), help="npu trains on Ascend NPUs, which is untested")
    gpus.add_argument("--n-gpus", type=int, metavar="N", help="GPUs of each host (default: 1)")
    gpus.add_argument("--nnodes", type=int, metavar="N", help="hosts of the Ray cluster (default: 1)")
    gpus.add_argument("--trainer-mode", choices=("sync", "colocate_async", "separate_async"),
                      help="whether rollouts and updates take turns (sync, default) or overlap")  # fmt: skip
    return parser.parse_intermixed_args(argv)


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("run")
    length = run.add_mutually_exclusive_group()
    length.add_argument(
        "--ci",
        action="store_true",
        help=f"a run of {CI_STEPS} steps; the embedded model on a CPU and on the sample: the shorter recipe of "
        "docs/results.md",
    )
    length.add_argument("--ci-fast", action="store_true", help="a run of one step")
    length.add_argument("--dev", action="store_true", help="no training: run up to ten validation questions through "
                        "runner, store and proxy and print every span; the model is that of OPENAI_API_BASE, if "
                        "set")  # fmt: skip
    run.add_argument("--backend", choices=("auto", "local", "verl"),
                     help="local trains on a CPU, verl on GPUs; auto (default): verl if it is installed and there is a "
                     "GPU")  # fmt: skip
    run.add_argument("--resume", action="store_true", help="continue the run called run_name")
    run.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings, the weakest source")
    run.add_argument("--n-runners", type=int, metavar="N", help="processes that run the agent (default: 4)")
    run.add_argument(
        "--external-store-address", metavar="URL", help="a store started with `agl store --host 127.0.0.1 --port N`"
    )
    run.add_argument("--llm-proxy", action="store_true", help="accepted for old scripts; the proxy is always used")
    run.add_argument("-q", "--quiet", action="store_true", help="print no line per rollout (role runner)")
    run.add_argument("--debug", action="store_true", help="show the logs of all components")


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="PATH_OR_ID",
                       help="a Hugging Face folder or id (default: the embedded SmolLM2-135M-Instruct)")  # fmt: skip
    model.add_argument("--lora-rank", type=int, metavar="N", help="rank of the trained LoRA adapters; 0 (default) "
                       "trains all weights (backend verl)")  # fmt: skip
    level = model.add_mutually_exclusive_group()
    level.add_argument("--trajectory-level", dest="level", action="store_const", const="trajectory",
                       help="turns that continue each other form one training sequence (default)")  # fmt: skip
    level.add_argument("--transition-level", dest="level", action="store_const", const="transition",
                       help="each turn is one training sequence (backend verl)")  # fmt: skip
