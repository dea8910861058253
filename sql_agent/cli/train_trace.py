"""Show every span of some rollouts, without training: sql-agent train --dev"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from sql_agent.cli.model_choice import ChosenModel, describe_local, remote_endpoint, served
from sql_agent.cli.question_sets import evenly_spaced
from sql_agent.cli.train_plan import Plan
from sql_agent.errors import TrainingError
from sql_agent.runs.console import Ui
from sql_agent.runs.rollout_view import show_rollout
from sql_agent.system.files import timestamped_folder
from sql_agent.system.runtime import slow_imports

TRACED_QUESTIONS = 10
_VALUE_CHARS = 200  # of an attribute of a span


def show_trace(plan: Plan, ui: Ui) -> None:
    """Ask up to ten validation questions through runner, store and proxy, and print every rollout and span.

    The model is OPENAI_MODEL at OPENAI_API_BASE if set, else the one of the settings, served on this machine. Raises
    TrainingError when a rollout was lost.
    """
    settings = plan.settings
    remote = remote_endpoint(settings, settings.model or None)
    questions = evenly_spaced([q for of in plan.val.values() for q in of], TRACED_QUESTIONS)
    folder = timestamped_folder(settings.runs_dir, "dev-")
    asked = f"{remote.model} at {remote.base_url}" if remote else describe_local(settings)
    ui.say(f"Asking {asked}; nothing is trained. The proxy's output goes to {folder / 'proxy.log'}")
    with slow_imports():
        from sql_agent.training.dev import trace_rollouts  # noqa: PLC0415  slow to import

    with plan.task.databases(settings) as databases:
        model = served(ChosenModel(asked, settings, remote), databases, ui)
        traced = trace_rollouts(settings, questions, model, folder, ui, with_token_ids=remote is None)
    for number, (rollout, spans) in enumerate(traced, 1):
        ui.console.rule(Text(f"Question {number} of {len(traced)}"))
        if rollout.record is not None:
            show_rollout(rollout.record, ui.console)
        for span in spans:
            _show_span(span, ui)
    rollouts = [rollout for rollout, _ in traced]
    lost = [rollout.dropped for rollout in rollouts if rollout.record is None or rollout.record.dropped]
    triplets = sum(rollout.triplets for rollout in rollouts)
    spans_in_all = sum(len(spans) for _, spans in traced)
    ui.say(f"{len(traced) - len(lost)} of {len(traced)} rollouts ended, {spans_in_all} spans, "
           f"{triplets} triplets{'' if triplets else ', because this endpoint returns no token ids'}")  # fmt: skip
    ui.say(plan.task.disclaimer)
    if lost:
        raise TrainingError(
            f"{len(lost)} of {len(traced)} rollouts were lost: {lost[0]}", hint=f"see the logs in {folder}"
        )


def _show_span(span: Any, ui: Ui) -> None:
    seconds = (span.end_time or 0.0) - (span.start_time or 0.0)
    ui.say(f"span {span.sequence_id}: {span.name}, {seconds:.2f} s")
    for name, value in (span.attributes or {}).items():
        text = " ".join(str(value).split())
        shown = text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]} … ({len(text)} characters)"
        ui.say(f"  {name}: {shown}")
