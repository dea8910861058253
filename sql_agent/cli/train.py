"""Train a model: read settings, check them, run, and write the report: sql-agent train"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from sql_agent.cli.resource_check import check_resources
from sql_agent.cli.run_end import close_trackers, say_finished, say_results, say_unfinished, try_report
from sql_agent.cli.run_questions import leaves_out_natural
from sql_agent.cli.train_checks import check_before_start, check_demonstrations
from sql_agent.cli.train_settings import parse_arguments, settings_from, settings_of_host, with_judge
from sql_agent.config.settings import Settings
from sql_agent.errors import SqlAgentError
from sql_agent.judge_eval.trust import check_trust
from sql_agent.reward.factory import judge_from_settings
from sql_agent.rollouts.preflight import check_opentelemetry
from sql_agent.rollouts.run_role import RunRole, StoreAddress, check_store
from sql_agent.runs.console import Ui
from sql_agent.runs.run_info import recorded_session
from sql_agent.runs.run_log import RunLog
from sql_agent.runs.trackers.trackers import Trackers
from sql_agent.schemas import Question
from sql_agent.system.imports import slow_imports
from sql_agent.system.signals import INTERRUPTED
from sql_agent.tasks.task import Task, load_task


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the command line says; returns the exit code (0, or 130 after an interrupt)."""
    arguments = parse_arguments(argv)
    run_role = RunRole.from_environment(arguments.external_store_address)
    ui = Ui()
    if run_role.store:
        check_store(run_role.store)
        if run_role.role == "runner":
            return _run_rollouts(arguments, run_role.store, ui)
    settings, judge_said = with_judge(settings_from(arguments))
    task = load_task(settings.task)
    check_resources(settings, verl=settings.backend == "verl")  # first, because it takes no time
    task.prepare(settings, ui.say)
    train, val, judge = check_before_start(settings, task, ui)
    if arguments.dev:
        return _dev(settings, task, val, ui)
    check_demonstrations(train, settings)
    warning = check_trust(judge, settings.judge)
    log = _open_log(settings, ui, resume=arguments.resume)
    # Imported only now, because agent-lightning takes seconds: errors of the checks above should come first.
    with slow_imports():
        from sql_agent.training import run  # noqa: PLC0415

    run.set_log_level(debug=arguments.debug)
    if warning:
        ui.say(f"Warning: {warning}")
    if leaves_out_natural(settings, task):
        ui.say(f"No natural questions: they are about the sample in SQLite, and {task.database_shown(settings)} is not")
    asked = " and ".join(f"{len(questions)} {name}" for name, questions in val.items())
    graded_by = judge_said if task.make_judge is judge_from_settings else f"judge {judge.name}, the task's own"
    ui.say(f"Run {log.folder}: {len(train)} training questions, {asked} for validation, {graded_by}")
    try:
        with recorded_session(log.folder, task.database_shown(settings)) as ending:
            log.trackers = Trackers(settings, log.folder, ui.say)
            algorithm = run.run_algorithm(
                settings,
                run_role,
                log,
                ui,
                train=train,
                val=val,
                resume=arguments.resume,
                if_killed=lambda how: say_unfinished(log, settings, ui, how=how),
            )
            if algorithm.error is not None:
                raise algorithm.error
            ending.interrupted = algorithm.interrupted
    except SqlAgentError:
        say_unfinished(log, settings, ui, how="failed")
        raise
    except KeyboardInterrupt:  # before the algorithm handles signals, or a second one
        say_unfinished(log, settings, ui, how="was interrupted")
        return INTERRUPTED
    finally:
        report = try_report(log, ui)
        close_trackers(log)
    if algorithm.interrupted:
        say_unfinished(log, settings, ui, how="was interrupted")
        return INTERRUPTED
    say_results(log, ui, report, verl=settings.backend == "verl")
    ui.say(task.disclaimer)
    say_finished(log, ui)
    return 0


def _run_rollouts(arguments: argparse.Namespace, store: StoreAddress, ui: Ui) -> int:
    """Run the rollouts of an algorithm in another terminal that uses `store`; returns the exit code."""
    check_opentelemetry()
    own = settings_of_host(arguments)
    with slow_imports():
        from sql_agent.training import run  # noqa: PLC0415  slow, and the checks come first

    run.set_log_level(debug=arguments.debug)
    return INTERRUPTED if run.run_runners(own, store, ui, quiet=arguments.quiet) else 0


def _open_log(settings: Settings, ui: Ui, *, resume: bool) -> RunLog:
    """Open the folder of the run; says how a resumed one goes on, and when an unsaved one of that name was moved."""
    log = RunLog.resume(settings) if resume else RunLog.create(settings)
    if log.moved_aside:
        ui.say(f"A run of this name ended before its first save; its files are now in {log.moved_aside}")
    if log.resumed:
        ui.say(log.resumed)
    return log


def _dev(settings: Settings, task: Task, val: Mapping[str, Sequence[Question]], ui: Ui) -> int:
    """Show a run without its training; returns the exit code."""
    from sql_agent.cli.dev_run import show_dev_run  # noqa: PLC0415  slow, and the checks come first

    show_dev_run(settings, val, ui)
    ui.say(task.disclaimer)
    return 0
