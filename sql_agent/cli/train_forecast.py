"""Print what a training run needs before it starts: sql-agent train --plan"""

from __future__ import annotations

from rich.table import Table

from sql_agent.cli.model_choice import count_parameters
from sql_agent.cli.train_checks import check_host_memory, checkpoint_bytes
from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError, ModelError
from sql_agent.runs.console import Ui
from sql_agent.system.resources import available_memory, free_disk, shown_size
from sql_agent.training.duration import Duration, estimate
from sql_agent.training.policy.context import config_of
from sql_agent.training.policy.shape import Shape
from sql_agent.training.verl import config as verl_config
from sql_agent.training.verl.memory import GB, MemoryPlan
from sql_agent.training.verl.memory_plan import plan_memory, refuse


def show_forecast(settings: Settings, ui: Ui) -> None:
    """Print memory, disk and time of a run with `settings`. Raises SqlAgentError when the run does not fit."""
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
    if checkpoint_bytes(settings, parameters) > free_disk(settings.runs_dir):
        raise ConfigError(
            "the checkpoints do not fit on the disk", hint="name another disk with runs_dir=FOLDER, or free space"
        )


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
    needed, free = checkpoint_bytes(settings, parameters), free_disk(settings.runs_dir)
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
