"""Say how a run ended: its results, what is saved, how to go on."""

from __future__ import annotations

from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.errors import DataError
from sql_agent.runs.console import Ui
from sql_agent.runs.report import write_report
from sql_agent.runs.resume import how_to_go_on, last_saved_step
from sql_agent.runs.run_lines import run_lines
from sql_agent.runs.run_log import RunLog, last_checkpoint


def try_report(log: RunLog, ui: Ui) -> Path | None:
    """Write the report, also of a run that failed; None, and a line that says why, when that cannot be done.

    Such as on a full disk, or of a folder that was removed. It raises nothing, because what ended the run matters more.
    """
    try:
        return write_report(log.folder)
    except (OSError, DataError) as error:
        reason = error.message if isinstance(error, DataError) else error.strerror
        ui.say(f"Warning: the report could not be written: {reason}. Later: sql-agent report {log.folder}")
        return None


def close_trackers(log: RunLog) -> None:
    """Let the trackers send the rest, with the last checkpoint where it is a Hugging Face folder and they want it."""
    if log.trackers is None:
        return
    try:
        model = last_checkpoint(log.folder)
    except DataError:
        model = None
    log.trackers.close(model)


def say_unfinished(log: RunLog, settings: Settings, ui: Ui, *, how: str) -> None:
    """Say how far a run came that ended early, `how` (a participle), what of it is saved, and how to go on."""
    if not (log.folder / "config.json").exists():
        ui.say(
            f"The run {how}, and its folder {log.folder} is gone: it was removed or moved while the run trained. If it "
            "was moved, move it back; then the same command with --resume goes on after the last save in it"
        )
        return
    saved = last_saved_step(log.folder)
    if saved is None:
        ui.say(f"The run {how} before its first save. To start again: the same command; its name can be taken again")
        return
    done = f"{log.last_step()} of {settings.train.steps} steps"
    ui.say(f"The run {how} after {done}; step {saved} is saved. To continue: {how_to_go_on(log.folder)}")


def say_results(log: RunLog, ui: Ui, report: Path | None, *, verl: bool) -> None:
    """Print the validations and where the model, the rollouts and the report of a finished run are."""
    ui.before_after(list(run_lines(log.folder / "validation.jsonl")))
    if verl:
        ui.say(f"Model:    sql-agent export {log.folder} OUT")
        ui.say(f"See it:   sql-agent ask --run {log.folder} --model OUT")
    else:
        ui.say(f"Model:    {last_checkpoint(log.folder)}")
        ui.say(f"See it:   sql-agent ask --run {log.folder}")
    ui.say(f"Rollouts: {log.folder / 'rollouts.jsonl'}   Metrics: {log.folder / 'metrics.jsonl'}")
    if report:
        ui.say(f"Report:   {report}")


def say_finished(log: RunLog, ui: Ui) -> None:
    """Say as the last line of a run whether it learned; GRPO has no gradient where all rewards of a group are equal."""
    steps = list(run_lines(log.folder / "metrics.jsonl"))
    if any(step.get("groups/informative") for step in steps):
        ui.say(f"The run ended well: {len(steps)} step{'' if len(steps) == 1 else 's'}.")
    else:
        of_steps = "in its one step not" if len(steps) == 1 else f"in none of its {len(steps)} steps"
        ui.say(
            f"Warning: the run learned nothing: {of_steps} did the rewards within a group "
            "differ, so there was no gradient. Try easier questions, more sft.steps, or a higher agent.temperature."
        )
