"""Plan a training run: load its settings once, check everything that could end the run early, load its questions."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sql_agent.cli.model_folder import check_model
from sql_agent.cli.parser import flag_settings
from sql_agent.cli.question_sets import leaves_out_natural, questions_of_run
from sql_agent.cli.train_checks import check_demonstrations, check_questions_of, check_settings, verl_is_installed
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings, Source, merge, read_sources, sources_shown, toml_source
from sql_agent.judge_eval.evaluation import last_evaluation
from sql_agent.reward import Judge
from sql_agent.reward.factory import judge_from_settings, judge_name
from sql_agent.runs.console import Ui
from sql_agent.runs.resume import settings_to_resume
from sql_agent.schemas import Question
from sql_agent.tasks.task import Task, given_source, load_task
from sql_agent.training import local
from sql_agent.training.verl.config import defaults as verl_defaults
from sql_agent.training.verl.config import trains_on_npu

CI_STEPS = 20
# Flags that set one setting, beside those of every command.
_FLAGS = {
    "model": "model",
    "backend": "backend",
    "train_file": "data.train_file",
    "val_file": "data.val_file",
    "mapping": "data.mapping",
    "n_runners": "runner.n_runners",
    "n_gpus": "verl.n_gpus",
    "nnodes": "verl.nnodes",
    "lora_rank": "verl.lora_rank",
    "trainer_mode": "verl.trainer_mode",
    "level": "verl.config.sql_agent.level",
}
_LAPTOP = Path(local.__file__).with_name("laptop.toml")


@dataclass(frozen=True)
class Plan:
    """A run that can start.

    `train` are the training questions, `val` the validation sets by name, `judge` grades the answers, and `head`
    describes the run to the user.
    """

    settings: Settings
    task: Task
    train: list[Question]
    val: dict[str, list[Question]]
    judge: Judge
    head: Sequence[str] = ()


def make_plan(arguments: argparse.Namespace, ui: Ui) -> Plan:
    """Build the plan of the command line's run; a missing sample database is made.

    Raises a SqlAgentError for everything that is missing, wrong or too small. The cheapest checks come first.
    """
    chosen, sources = plan_settings(arguments)
    settings, judge_said = with_judge(chosen)
    task = load_task(settings.task)
    check_settings(settings)
    task.prepare(settings, ui.say)
    task.open_database(settings).close()
    judge = task.judge(settings)
    train, val = questions_of_run(settings, task)
    plan = Plan(settings, task, train, val, judge)
    train, val = check_questions_of(plan, ui)
    of_settings = task.make_judge is judge_from_settings
    graded_by = judge_said if of_settings else f"judge {judge.name}, the task's own"
    head = _head(plan, graded_by) + ([] if arguments.resume else sources_shown(sources))
    if not arguments.resume:  # which has its model in the run's folder
        check_model(settings.model)  # last, because it may ask the hub
    if not arguments.dev:
        check_demonstrations(plan)
        if of_settings:
            head.append(last_evaluation(judge, settings.runs_dir))
    return replace(plan, train=train, val=val, head=head)


def plan_settings(arguments: argparse.Namespace) -> tuple[Settings, list[Source]]:
    """Return the settings of the command line over the defaults of the chosen backend, and the sources given.

    With --resume the settings are those of the run; the command line may change only what does not change its result.
    """
    sources = read_sources(arguments.overrides, config_file=arguments.config, flags=flags_of(arguments))
    if arguments.resume:
        return settings_to_resume(sources), sources
    given = merge(sources)
    backend = "local" if arguments.dev else chosen_backend(given)
    defaults: list[Path] = []
    preset: dict[str, Any] = {"train.steps": CI_STEPS} if arguments.ci else {}
    if backend == "verl":
        defaults = verl_defaults(given.task, npu=trains_on_npu(given))
    elif arguments.ci_fast:
        preset["data.natural_questions"] = 0  # on a CPU these would take longer than the step
    if backend == "local" and (arguments.ci or arguments.ci_fast) and _is_recipe_run(given):
        defaults = [_LAPTOP]
        preset.pop("train.steps", None)  # the recipe has its own number
        if arguments.ci_fast:
            preset["train.questions_per_step"] = 2  # shows the step in a quarter of its time
    *weaker, command_line = sources
    settings = merge([*map(toml_source, defaults), *weaker, Source("command line", preset), command_line])
    return settings.model_copy(update={"backend": backend}), sources


def with_judge(settings: Settings) -> tuple[Settings, str]:
    """Return `settings` with the judge that "auto" means, and a phrase that names it and says why it was chosen.

    The name is written into the run's config.json, so that a resumed run keeps its judge in another environment.
    """
    name = judge_name(settings.judge, TeacherSettings())
    why = "" if settings.judge.name == name else f" (TEACHER_MODEL is {'set' if name == 'llm' else 'not set'})"
    judge = settings.judge.model_copy(update={"name": name})
    return settings.model_copy(update={"judge": judge}), f"judge {name}{why}"


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the flags of `sql-agent train` set, by dotted name."""
    steps = {"train.steps": 1} if arguments.ci_fast else {}
    device = {"verl.config.trainer.device": "npu"} if arguments.device == "npu" else {}
    return flag_settings(arguments, _FLAGS) | steps | device


def chosen_backend(settings: Settings) -> str:
    """Return the backend of `settings`; "auto" is verl where it is installed and a GPU is there, or for an NPU."""
    if settings.backend != "auto":
        return settings.backend
    if trains_on_npu(settings):
        return "verl"
    return "verl" if verl_is_installed() and shutil.which("nvidia-smi") else "local"


def _is_recipe_run(settings: Settings) -> bool:
    """Whether the embedded model is trained on the sample's own questions, for which laptop.toml was made."""
    given = (settings.model, given_source(settings), settings.data.train_file)
    return settings.task == "medical" and not any(given)


def _head(plan: Plan, graded_by: str) -> list[str]:
    """Describe the run: its questions and judge, its model and database."""
    settings, task = plan.settings, plan.task
    asked = " and ".join(f"{len(questions)} {name}" for name, questions in plan.val.items())
    database = task.database_shown(settings)
    head = [
        f"{len(plan.train)} training questions, {asked} for validation, {graded_by}",
        f"Model {settings.model or 'SmolLM2-135M-Instruct (embedded)'}, database {database}",
    ]
    if leaves_out_natural(settings, task):
        head.append(f"No natural questions: they are about the sample in SQLite, and {database} is not")
    return head
