"""Print what a run did: how it ended, what is saved, how to continue; for `train --dev` every rollout and span."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from sql_agent.cli.model_choice import describe_local, remote_endpoint
from sql_agent.cli.train_plan import Plan
from sql_agent.config.settings import Settings
from sql_agent.errors import DataError, TrainingError
from sql_agent.runs.charts import validation_table
from sql_agent.runs.checkpoints import how_to_go_on, last_checkpoint, last_saved_step
from sql_agent.runs.console import Ui, print_table
from sql_agent.runs.report import write_report
from sql_agent.runs.rollout_view import show_rollout
from sql_agent.runs.run_lines import run_lines
from sql_agent.runs.run_log import RunLog
from sql_agent.system.files import timestamped_folder
from sql_agent.system.runtime import slow_imports
from sql_agent.training.batching import evenly_spaced

_TRACED_QUESTIONS = 10
_VALUE_CHARS = 200


def try_report(log: RunLog, ui: Ui) -> Path | None:
    """Write the report, also of a run that failed; print why it cannot be written, and return None then.

    The disk may be full or the folder removed. Nothing is raised, because the error that ended the run matters more.
    """
    try:
        return write_report(log.folder)
    except (OSError, DataError) as error:
        reason = error.message if isinstance(error, DataError) else error.strerror
        ui.say(f"Warning: the report could not be written: {reason}. Later: sql-agent report {log.folder}")
        return None


def say_unfinished(log: RunLog, settings: Settings, ui: Ui, *, how: str) -> None:
    """Print how far a run came that ended early (`how` is a participle), what is saved, and how to continue."""
    if not (log.folder / "config.json").exists():
        ui.say(
            f"The run {how}, and its folder {log.folder} is gone: it was removed or moved during the run. If it "
            "was moved, move it back; then the same command with --resume continues after the last save in it"
        )
        return
    saved = last_saved_step(log.folder)
    if saved is None:
        ui.say(f"The run {how} before its first save. To start again: the same command; its name can be taken again")
        return
    done = f"{log.last_step()} of {settings.train.steps} steps"
    ui.say(f"The run {how} after {done}; step {saved} is saved. To continue: {how_to_go_on(log.folder)}")


def say_finished(plan: Plan, log: RunLog, ui: Ui, report: Path | None) -> None:
    """Print the validations, where the model, the rollouts and the report are, and whether the run learned."""
    print_table(validation_table(list(run_lines(log.folder / "validation.jsonl"))), ui.console)
    if plan.settings.backend == "verl":
        ui.say(f"Model:    sql-agent export {log.folder} OUT")
        ui.say(f"See it:   sql-agent ask --run {log.folder} --model OUT")
    else:
        ui.say(f"Model:    {last_checkpoint(log.folder)}")
        ui.say(f"See it:   sql-agent ask --run {log.folder}")
    ui.say(f"Rollouts: {log.folder / 'rollouts.jsonl'}   Metrics: {log.folder / 'metrics.jsonl'}")
    if report:
        ui.say(f"Report:   {report}")
    ui.say(plan.task.disclaimer)
    say_whether_learned(log, ui)


def say_whether_learned(log: RunLog, ui: Ui) -> None:
    """Print whether the run learned; GRPO has no gradient where all rewards of a group are equal."""
    steps = list(run_lines(log.folder / "metrics.jsonl"))
    if any(step.get("groups/informative") for step in steps):
        ui.say(f"The run ended well: {len(steps)} step{'' if len(steps) == 1 else 's'}.")
    else:
        of_steps = "in its only step" if len(steps) == 1 else f"in all of its {len(steps)} steps"
        ui.say(
            f"Warning: the run learned nothing: {of_steps} the rewards within each group were equal, so there was no "
            "gradient. Try easier questions, more sft.steps, or a higher agent.temperature."
        )


def show_trace(plan: Plan, ui: Ui) -> None:
    """Ask up to ten validation questions through runner, store and proxy, and print every rollout and span.

    The model is the one at OPENAI_API_BASE, else that of the settings, served on this machine. Nothing is trained.
    Raises TrainingError when the infrastructure lost a rollout.
    """
    settings = plan.settings
    endpoint = remote_endpoint(settings, settings.model or None)
    questions = evenly_spaced([q for of in plan.val.values() for q in of], _TRACED_QUESTIONS)
    folder = timestamped_folder(settings.runs_dir, "dev-")
    asked = f"{endpoint.model} at {endpoint.base_url}" if endpoint else describe_local(settings)
    ui.say(f"Asking {asked}; nothing is trained. The proxy's output goes to {folder / 'proxy.log'}")
    with slow_imports():
        from sql_agent.training.dev import trace_rollouts  # noqa: PLC0415  takes seconds

    traced = trace_rollouts(settings, questions, endpoint, folder, ui)
    for number, each in enumerate(traced, 1):
        ui.console.rule(Text(f"Question {number} of {len(traced)}"))
        if each.rollout.record is not None:
            show_rollout(each.rollout.record, ui.console)
        for span in each.spans:
            _show_span(span, ui)
    lost = [each.rollout.dropped for each in traced if each.rollout.record is None or each.rollout.record.dropped]
    triplets = sum(each.rollout.triplets for each in traced)
    ui.say(f"{len(traced) - len(lost)} of {len(traced)} rollouts ended, {sum(len(t.spans) for t in traced)} spans, "
           f"{triplets} triplets{'' if triplets else ', because this endpoint returns no token ids'}")  # fmt: skip
    ui.say(plan.task.disclaimer)
    if lost:
        raise TrainingError(f"{len(lost)} of {len(traced)} rollouts were lost: {lost[0]}", hint=f"see {folder}")


def _show_span(span: Any, ui: Ui) -> None:
    seconds = (span.end_time or 0.0) - (span.start_time or 0.0)
    ui.say(f"span {span.sequence_id}: {span.name}, {seconds:.2f} s")
    for name, value in (span.attributes or {}).items():
        text = " ".join(str(value).split())
        shown = text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]} … ({len(text)} characters)"
        ui.say(f"  {name}: {shown}")
