"""Look ahead without training: what a run needs (sql-agent train --plan), what its rollouts do (--dev)."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from sql_agent.cli.model_choice import ChosenModel, count_parameters, describe_local, remote_endpoint, served
from sql_agent.cli.question_sets import evenly_spaced
from sql_agent.cli.train_checks import check_free_disk, check_host_memory, disk_needed
from sql_agent.cli.train_plan import Plan
from sql_agent.config.settings import Settings
from sql_agent.errors import ModelError, TrainingError
from sql_agent.runs.console import Ui
from sql_agent.runs.rollout_view import show_rollout
from sql_agent.system.files import timestamped_folder
from sql_agent.system.process import slow_imports
from sql_agent.system.resources import available_memory, shown_size
from sql_agent.training.duration import Duration, estimate
from sql_agent.training.policy.model_config import Shape, config_of
from sql_agent.training.verl import config as verl_config
from sql_agent.training.verl.memory import GB, MemoryPlan, plan_memory, refuse

TRACED_QUESTIONS = 10
_VALUE_CHARS = 200  # of an attribute of a span


def show_forecast(settings: Settings, ui: Ui) -> None:
    parameters = _parameters(settings)
    trained = f"LoRA adapters of rank {settings.verl.lora_rank}" if settings.verl.lora_rank else "all weights"
    name = settings.model or "SmolLM2-135M-Instruct"
    ui.say(f"{name}, {parameters / 1e9:.2f} B parameters, {trained} trained; backend {settings.backend}")
    plan = None
    if settings.backend == "verl":
        verl_config.check(settings)
        plan = plan_memory(settings)
        _show_memory(plan, ui)
    _show_disk(settings, parameters, ui)
    _show_time(estimate(settings, parameters), ui)
    if plan is not None:
        refuse(settings, plan)
    else:
        check_host_memory(settings, parameters)
    check_free_disk(settings, parameters)


def _parameters(settings: Settings) -> int:
    """Return the number of the model's parameters, from its weights or its config.json."""
    counted = count_parameters(settings.model)
    if counted is not None:
        return counted
    shape = Shape.of(config_of(settings.model) or {})
    if shape is None:
        raise ModelError(
            f"the sizes of {settings.model} are unknown: there is no config.json of a dense model in a folder of that "
            "name or in the hub's cache",
            hint="download the model first, and give its folder",
        )
    return shape.parameters


def _show_memory(plan: MemoryPlan, ui: Ui) -> None:
    card = plan.card
    ui.say(
        f"Memory of each GPU in GB, for a card with {card.free / GB:.1f} GB free, of which {card.usable / GB:.1f} "
        "can be used"
    )
    table = Table("", *plan.phases, box=None, padding=(0, 1))
    names = list(dict.fromkeys(name for parts in plan.phases.values() for name in parts))
    for name in names:
        table.add_row(name, *(_shown(parts.get(name)) for parts in plan.phases.values()))
    table.add_row("sum", *(_shown(sum(parts.values())) for parts in plan.phases.values()))
    for column in table.columns[1:]:
        column.justify = "right"
    ui.console.print(table)
    ui.say(plan.summary)


def _shown(size: float | None) -> str:
    return "" if size is None else f"{size / GB:.1f}"


def _show_disk(settings: Settings, parameters: int, ui: Ui) -> None:
    needed, free = disk_needed(settings, parameters)
    ui.say(f"Disk: {shown_size(needed)} for checkpoints, {shown_size(free)} free at {settings.runs_dir}")
    memory = available_memory()
    if settings.backend == "local" and memory is not None:
        ui.say(f"Memory: {shown_size(memory)} available")


def _show_time(duration: Duration, ui: Ui) -> None:
    step_s = duration.rollout_s + duration.update_s
    parts = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in duration.parts.items() if seconds)
    ui.say(f"A step: {step_s:.1f} s (rollouts {duration.rollout_s:.1f}, update and the rest {duration.update_s:.1f})")
    ui.say(f"In all: {duration.total_s / 60:.0f} minutes ({parts})")
    ui.say(f"The times are an estimate, scaled from {duration.source}")


def show_trace(plan: Plan, ui: Ui) -> None:
    """Ask up to ten validation questions through runner, store and proxy, and print every rollout and span.

    The model is OPENAI_MODEL at OPENAI_API_BASE if set, else the one of the settings, served on this machine.
    """
    settings = plan.settings
    remote = remote_endpoint(settings, settings.model or None)
    questions = evenly_spaced([q for of in plan.val.values() for q in of], TRACED_QUESTIONS)
    folder = timestamped_folder(settings.runs_dir, "dev-")
    asked = f"{remote.model} at {remote.base_url}" if remote else describe_local(settings)
    ui.say(f"Asking {asked}; nothing is trained. The proxy's output goes to {folder / 'proxy.log'}")
    with slow_imports():
        from sql_agent.training.run import trace_rollouts  # noqa: PLC0415  slow to import

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
