"""Show how a few questions go through the whole of a run but the training: sql-agent train --dev"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from sql_agent.cli.asked_model import describe_local, remote_endpoint
from sql_agent.config.settings import Settings
from sql_agent.errors import TrainingError
from sql_agent.runs.console import Ui
from sql_agent.runs.rollout_view import show_rollout
from sql_agent.schemas import Question
from sql_agent.system.files import timestamped_folder
from sql_agent.system.imports import slow_imports
from sql_agent.training.batching import evenly_spaced

QUESTIONS = 10
_VALUE_CHARS = 200


def show_dev_run(settings: Settings, val: Mapping[str, Sequence[Question]], ui: Ui) -> None:
    """Ask up to ten validation questions through runner, store and proxy, and print every rollout and span.

    The model is the one behind OPENAI_API_BASE, else that of the settings, served on this machine. Nothing is trained.
    Raises TrainingError when the infrastructure lost a rollout.
    """
    endpoint = remote_endpoint(settings, settings.model or None)
    questions = evenly_spaced([q for of in val.values() for q in of], QUESTIONS)
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
    if lost:
        raise TrainingError(f"{len(lost)} of {len(traced)} rollouts were lost: {lost[0]}", hint=f"see {folder}")


def _show_span(span: Any, ui: Ui) -> None:
    seconds = (span.end_time or 0.0) - (span.start_time or 0.0)
    ui.say(f"span {span.sequence_id}: {span.name}, {seconds:.2f} s")
    for name, value in (span.attributes or {}).items():
        text = " ".join(str(value).split())
        shown = text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]} … ({len(text)} characters)"
        ui.say(f"  {name}: {shown}")
