"""Train a small model to answer questions by querying a database with SQL.

Without arguments, train the bundled SmolLM2-135M-Instruct on the sample
database, which is made if it is missing. A run writes a report, every rollout,
metrics and checkpoints to runs/NAME."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

from rich.text import Text

from sql_agent.cli.command import SETS, add_setting_flags, add_task_flags, add_words, new_parser, parse_words
from sql_agent.cli.model_choice import ChosenModel, describe_local, remote_endpoint, served
from sql_agent.cli.question_sets import evenly_spaced
from sql_agent.cli.train_checks import show_forecast
from sql_agent.cli.train_plan import CI_STEPS, Plan, make_plan, plan_settings
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import DataError, GpuMemoryError, SqlAgentError, TrainingError
from sql_agent.rollouts.preflight import check_opentelemetry
from sql_agent.rollouts.run_role import RunRole, StoreAddress, check_store
from sql_agent.runs.charts import result_table, stages
from sql_agent.runs.checkpoints import last_checkpoint, last_saved_step
from sql_agent.runs.console import Ui, print_table
from sql_agent.runs.report import write_report
from sql_agent.runs.resume import check_inputs, how_to_go_on, question_digest
from sql_agent.runs.rollout_view import show_rollout, show_span
from sql_agent.runs.run_folder import METRICS, ROLLOUTS, VALIDATION, recorded_session, run_lines
from sql_agent.runs.run_log import RunLog
from sql_agent.runs.trackers import Trackers
from sql_agent.system.files import timestamped_folder
from sql_agent.system.process import INTERRUPTED, repeat_command, slow_imports
from sql_agent.system.resources import named_memory_errors
from sql_agent.tasks.task import database_digest
from sql_agent.training.verl.config import trains_on_npu
from sql_agent.training.verl.warm_python import warm_server

_TRACED_QUESTIONS = 10

_EXAMPLES = """
  sql-agent train --ci-fast                  one step, to see that it works
  sql-agent train --ci run_name=first        some minutes, kept in runs/first
  sql-agent train --ci --resume run_name=first
  sql-agent train --model Qwen/Qwen2.5-0.5B-Instruct --backend verl --n-gpus 2
  sql-agent train train.lr=1e-5 agent.max_turns=3 judge.name=llm

To split a run over terminals that share a store, set the variables
AGL_CURRENT_ROLE=algorithm|runner|both and AGL_MANAGED_STORE=0|1, in the
environment or .env."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    role = RunRole.from_environment(arguments.external_store_address)
    ui = Ui()
    if role.store:
        check_store(role.store)
        if role.role == "runner":
            return _serve_rollouts(arguments, role.store, ui)
    chosen, sources = plan_settings(arguments)
    if arguments.plan:
        show_forecast(chosen, ui)
        return 0
    with ExitStack() as started:
        if chosen.backend == "verl" and not trains_on_npu(chosen):
            started.enter_context(warm_server())  # imports verl while the plan is made
        return _train(make_plan(arguments, chosen, sources, ui), role, ui, arguments, started)


def _train(plan: Plan, role: RunRole, ui: Ui, arguments: argparse.Namespace, started: ExitStack) -> int:
    """Run and finish the `plan`; return 0, or 130 after an interrupt. `started` is closed before a restart."""
    if arguments.dev:
        _show_trace(plan, ui)
        return 0
    # The digests of what must not change until the run is resumed.
    digests = {
        "the training questions": question_digest(plan.train),
        "the database": database_digest(plan.task, plan.settings),
    }
    inputs = {name: digest for name, digest in digests.items() if digest}
    if arguments.resume:
        check_inputs(plan.settings.runs_dir / plan.settings.run_name, inputs)
    log = RunLog.resume(plan.settings) if arguments.resume else RunLog.create(plan.settings)
    interrupted, smaller = False, {}
    try:
        _run(plan, log, role, ui, arguments, inputs=inputs)
    except KeyboardInterrupt:
        interrupted = True
    except SqlAgentError as error:
        smaller = dict(error.smaller) if isinstance(error, GpuMemoryError) else {}
        if not smaller:
            say_unfinished(log, plan.settings, ui, how="failed")
            raise
    finally:
        report = try_report(log, ui)
        if log.trackers:
            log.trackers.close()
    if smaller:
        started.close()
        _start_again(smaller, log, ui)
    if interrupted:
        say_unfinished(log, plan.settings, ui, how="was interrupted")
        return INTERRUPTED
    say_finished(plan, log, ui, report)
    return 0


def _show_trace(plan: Plan, ui: Ui) -> None:
    """Ask up to ten validation questions through runner, store and proxy, and print every rollout and span.

    The model is OPENAI_MODEL at OPENAI_API_BASE if that is set, else the model of the settings, served here.
    """
    settings = plan.settings
    remote = remote_endpoint(settings, settings.model or None)
    questions = evenly_spaced([q for of in plan.val.values() for q in of], _TRACED_QUESTIONS)
    folder = timestamped_folder(settings.runs_dir, "dev-")
    asked = f"{remote.model} at {remote.base_url}" if remote else describe_local(settings)
    ui.say(f"Asking {asked}; nothing is trained. The proxy's output goes to {folder / 'proxy.log'}")
    from sql_agent.training.run import set_log_level, trace_rollouts  # noqa: PLC0415  imported by make_plan

    set_log_level(debug=False)
    with plan.task.databases(settings) as databases:
        model = served(ChosenModel(asked, settings, remote), databases, ui)
        traced = trace_rollouts(settings, questions, model, folder, ui, with_token_ids=remote is None)
    for number, (rollout, spans) in enumerate(traced, 1):
        ui.console.rule(Text(f"Question {number} of {len(traced)}"))
        if rollout.record is not None:
            show_rollout(rollout.record, ui.console)
        for span in spans:
            show_span(span, ui)
    lost = [rollout.dropped for rollout, _ in traced if rollout.record is None or rollout.record.dropped]
    triplets = sum(rollout.triplets for rollout, _ in traced)
    ui.say(f"{len(traced) - len(lost)} of {len(traced)} rollouts ended, "
           f"{sum(len(spans) for _, spans in traced)} spans, {triplets} triplets"
           f"{'' if triplets else ', because this endpoint returns no token ids'}")  # fmt: skip
    ui.say(plan.task.disclaimer)
    if lost:
        raise TrainingError(
            f"{len(lost)} of {len(traced)} rollouts were lost: {lost[0]}", hint=f"see the logs in {folder}"
        )


def _run(
    plan: Plan, log: RunLog, role: RunRole, ui: Ui, arguments: argparse.Namespace, *, inputs: Mapping[str, str]
) -> None:
    if log.notice:
        ui.say(log.notice)
    with named_memory_errors():  # `make_plan` has imported these
        from sql_agent.agent.tools import tool_schema  # noqa: PLC0415
        from sql_agent.agent.workflows import system_prompt  # noqa: PLC0415
        from sql_agent.training import run  # noqa: PLC0415

    run.set_log_level(debug=arguments.debug)
    ui.say(f"Run {log.folder}: {plan.head[0]}")
    for line in plan.head[1:]:
        ui.say(line)
    settings, task = plan.settings, plan.task
    with task.databases(settings) as databases, databases.of(plan.train[0].database) as database:
        log.prompt(system_prompt(task, database, settings), tool_schema(task, database))
    with recorded_session(log.folder, task.database_shown(settings), inputs), named_memory_errors():
        log.trackers, log.say = Trackers(settings, log.folder, ui.say), ui.say
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


def _start_again(smaller: Mapping[str, object], log: RunLog, ui: Ui) -> NoReturn:
    """Replace this process by one that continues after the last checkpoint with the settings `smaller`.

    verl's processes cannot repeat the update: FSDP is in the middle of a backward pass, other GPUs are in a collective
    call, and some optimizer steps may be done.
    """
    saved = last_saved_step(log.folder)
    added = [f"{name}={value}" for name, value in smaller.items()]
    where, resume = ("from the start", []) if saved is None else (f"after step {saved}", ["--resume"])
    ui.say(
        f"An update ran out of GPU memory. The run goes on {where}, once, with smaller micro-batches: {' '.join(added)}"
    )
    repeat_command([*resume, f"run_name={log.folder.name}", *added])


def _serve_rollouts(arguments: argparse.Namespace, store: StoreAddress, ui: Ui) -> int:
    """Run the rollouts that the process with the role algorithm puts into `store`; return the exit code."""
    check_opentelemetry()
    # The algorithm sends the settings that affect rollouts; the settings loaded here are those of this host.
    own = load_settings(arguments.overrides, config_file=arguments.config, flags=arguments.flags)
    with slow_imports():
        from sql_agent.training import run  # noqa: PLC0415  slow, so after the settings

    run.set_log_level(debug=arguments.debug)
    return INTERRUPTED if run.run_runners(own, store, ui, quiet=arguments.quiet) else 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    usage = "sql-agent train [--ci | --ci-fast] [FLAGS] [section.key=value ...]"
    parser = new_parser("train", __doc__, _EXAMPLES, usage=usage)
    add_words(parser, meaning="any setting, which overrides a flag; `sql-agent settings` lists them")
    run = parser.add_argument_group("run")
    add = run.add_argument
    one_of = run.add_mutually_exclusive_group().add_argument
    one_of("--ci", action="store_true", help=f"train {CI_STEPS} steps; the bundled model on a CPU: the steps of the "
           "short recipe in docs/results.md")  # fmt: skip
    one_of("--ci-fast", action="store_true", help="train one step")
    one_of("--dev", action="store_true", help=f"train nothing: run up to {_TRACED_QUESTIONS} validation questions "
           "through runner, store and proxy, and print every span; the model is that of OPENAI_API_BASE if "
           "set")  # fmt: skip
    add("--plan", action="store_true", help="train nothing: print the memory, disk and time that the run needs; exit "
        "code 2 if it does not fit")  # fmt: skip
    add_setting_flags(run, {"--backend": "backend", "--n-runners": "runner.n_runners"})
    add("--resume", action="store_true", help="continue the run run_name=NAME")
    add("--config", type=Path, metavar="FILE", help="TOML file of settings; other sources override it")
    add("--external-store-address", metavar="URL", help="address of `sql-agent store` or `agl store`")
    add("--llm-proxy", action="store_true", help="no effect, for old scripts: the proxy is always used")
    add("-q", "--quiet", action="store_true", help="print no line per rollout (role runner)")
    add("--debug", action="store_true", help="show the logs of all components")
    add_task_flags(parser, {"--train-roles": "agent.train_roles"})
    files = {"--train-file": "data.train_file", "--val-file": "data.val_file", "--mapping": "data.mapping"}
    add_setting_flags(parser.add_argument_group("data"), {"--lang": "lang", **files})
    model = parser.add_argument_group("model")
    add_setting_flags(model, {"--model": "model", "--lora-rank": "verl.lora_rank"})
    add_level = model.add_mutually_exclusive_group().add_argument
    level = partial(add_level, dest=f"{SETS}verl.config.sql_agent.level", action="store_const")
    level("--trajectory-level", const="trajectory", help="one sequence for turns that continue each other (default)")
    level("--transition-level", const="transition", help="one training sequence per turn (backend verl)")
    gpus = parser.add_argument_group("GPUs (backend verl)")
    gpus.add_argument("--device", choices=("gpu", "npu"), help="npu: train on Ascend NPUs (untested); default: gpu")
    counts = {"--n-gpus": "verl.n_gpus", "--nnodes": "verl.nnodes", "--trainer-mode": "verl.trainer_mode"}
    add_setting_flags(gpus, counts)
    arguments = parse_words(parser, argv)
    if arguments.ci_fast:
        arguments.flags["train.steps"] = 1
    if arguments.device == "npu":
        arguments.flags["verl.config.trainer.device"] = "npu"
    return arguments


def try_report(log: RunLog, ui: Ui) -> Path | None:
    """Write the report and return its path. An error here is only printed: it must not hide the error of the run."""
    try:
        return write_report(log.folder)
    except (OSError, DataError) as error:
        reason = error.message if isinstance(error, DataError) else error.strerror
        ui.say(f"Warning: the report could not be written: {reason}. To write it later: sql-agent report {log.folder}")
        return None


def say_unfinished(log: RunLog, settings: Settings, ui: Ui, *, how: str) -> None:
    """Print how a run ended early (`how`, such as "failed"), its last step and checkpoint, and how to continue it."""
    saved = last_saved_step(log.folder)
    if saved is None:
        ui.say(
            f"The run {how} before its first save. To start again, repeat the command; the run may have the same name"
        )
        return
    done = f"{log.last_step()} of {settings.train.steps} steps"
    ui.say(f"The run {how} after {done}; step {saved} is saved. To continue: {how_to_go_on(log.folder)}")


def say_finished(plan: Plan, log: RunLog, ui: Ui, report: Path | None) -> None:
    """Print the validations, the paths of model, rollouts and report, and whether the run learned."""
    validations = list(run_lines(log.folder / VALIDATION))
    print_table(result_table(stages(validations, sft_steps=plan.settings.sft.steps)), ui.console)
    if plan.settings.backend == "verl":
        ui.say(f"Model:    sql-agent export {log.folder} OUT")
        ui.say(f"See it:   sql-agent ask --run {log.folder} --model OUT")
    else:
        ui.say(f"Model:    {last_checkpoint(log.folder)}")
        ui.say(f"See it:   sql-agent ask --run {log.folder}")
    ui.say(f"Rollouts: {log.folder / ROLLOUTS}   Metrics: {log.folder / METRICS}")
    if report:
        ui.say(f"Report:   {report}")
    ui.say(plan.task.disclaimer)
    say_whether_learned(log, ui)


def say_whether_learned(log: RunLog, ui: Ui) -> None:
    """Print whether the run learned. GRPO has no gradient if the rewards within each group are equal."""
    steps = list(run_lines(log.folder / METRICS))
    if any(step.get("groups/informative") for step in steps):
        ui.say(f"The run ended well: {len(steps)} step{'' if len(steps) == 1 else 's'}.")
    else:
        of_steps = "in its only step" if len(steps) == 1 else f"in all of its {len(steps)} steps"
        ui.say(
            f"Warning: the run learned nothing: {of_steps} the rewards within each group were equal, so there was no "
            "gradient. Try easier questions, more sft.steps, or a higher agent.temperature."
        )
