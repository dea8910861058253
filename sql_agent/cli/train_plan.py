"""Plan a training run: load its settings, check what could end the run early, load and check its questions."""

from __future__ import annotations

import argparse
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from sql_agent.cli.model_choice import check_model
from sql_agent.cli.question_sets import TEMPLATE, evenly_spaced, leaves_out_natural, questions_of_run
from sql_agent.cli.train_checks import check_settings, verl_is_installed
from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings import Settings, Source, merge, read_sources, sources_shown, toml_source
from sql_agent.errors import ConfigError
from sql_agent.judge_eval.evaluation import last_evaluation
from sql_agent.questions.derived_evidence import with_derived_evidence
from sql_agent.questions.question_check import CheckedQuestion, check_questions, problem_of
from sql_agent.reward import Judge
from sql_agent.reward.factory import judge_from_settings, judge_name
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.runs.console import Ui
from sql_agent.runs.resume import settings_to_resume
from sql_agent.schemas import Question
from sql_agent.system.process import slow_imports
from sql_agent.tasks.task import DESCRIBED, Task, default_settings, given_source, load_task
from sql_agent.training import local
from sql_agent.training.serving.tool_format import tool_format_of
from sql_agent.training.verl.config import defaults as verl_defaults
from sql_agent.training.verl.config import trains_on_npu
from sql_agent.training.verl.memory import plan_memory

CI_STEPS = 20
_CI_MINUTES = 15.0  # of the laptop recipe: a CPU without bf16 takes three times as long for a step
_LAPTOP = Path(local.__file__).with_name("laptop.toml")
_CHECK_S = 2.0  # time limit for the checks of all questions together
_SAMPLE = 200  # maximum number of checked questions of each split; the time limit allows no more


@dataclass(frozen=True)
class Plan:
    """A checked run: `train` questions, `val` sets by name, and the lines `head`, which describe the run."""

    settings: Settings
    task: Task
    train: list[Question]
    val: dict[str, list[Question]]
    judge: Judge
    head: Sequence[str] = ()


def make_plan(arguments: argparse.Namespace, chosen: Settings, sources: Sequence[Source], ui: Ui) -> Plan:
    """Check everything that the requested run needs, the cheapest first, and return its plan.

    `chosen` and `sources` are those of `plan_settings`.
    Creates the sample database if it is missing. Raises a SqlAgentError for the first requirement that is not met.
    """
    settings, judge_said = with_judge(chosen)
    task = load_task(settings.task)
    check_settings(settings)
    loads_model = settings.backend == "verl" and not arguments.resume  # a resumed run loads that of its own folder
    beside = ThreadPoolExecutor(1)  # the format is found in another process, which loads the tokenizer for seconds
    tool_format = beside.submit(tool_format_of, settings.model, settings.agent) if loads_model else None
    beside.shutdown(wait=False)
    with slow_imports(), _training_imported():
        task.prepare(settings, ui.say)
        task.open_database(settings).close()
        judge = task.judge(settings)
        train, val = questions_of_run(settings, task)
    plan = Plan(settings, task, train, val, judge)
    train, val = check_questions_of(plan, ui)
    of_settings = task.make_judge is judge_from_settings
    graded_by = judge_said if of_settings else f"judge {judge.name}, the task's own"
    head = _head(plan, graded_by) + ([] if arguments.resume else sources_shown(sources))
    if not arguments.resume:
        check_model(settings.model)  # checked last, because it may ask the hub
        if tool_format is not None:  # printed now, because verl loads the model for minutes
            head.append(f"Tool-call format: {tool_format.result()}")
    if settings.backend == "verl":
        head.append(plan_memory(settings).summary)
    if not arguments.dev:
        if settings.sft.steps and not any(question.statements for question in train):
            raise ConfigError(
                "no training question has gold SQL, so there is nothing to fine-tune on before GRPO",
                hint="add a column `sql`, or set sft.steps=0 if the model queries without fine-tuning",
            )
        if of_settings:
            head.append(last_evaluation(judge, settings.runs_dir))
    return replace(plan, train=train, val=val, head=head)


@contextmanager
def _training_imported() -> Iterator[None]:
    """Import training/run.py in a thread while the block runs. A failed import raises its error at the next import."""

    def imports() -> None:
        with suppress(Exception):
            import_module("sql_agent.training.run")

    thread = threading.Thread(target=imports, daemon=True)
    thread.start()
    yield
    thread.join()  # the check of the questions has a time limit


def plan_settings(arguments: argparse.Namespace) -> tuple[Settings, list[Source]]:
    """Return the settings of the run, and the sources from which the user's settings were read.

    The user's settings take precedence over the settings files of task, backend and --ci. What --ci sets itself, such
    as `train.steps`, gives way only to the command line. With --resume, the settings come from the run's folder, and
    the user may change only settings that do not affect the result.
    """
    sources = read_sources(arguments.overrides, config_file=arguments.config, flags=arguments.flags)
    if arguments.resume:
        return settings_to_resume(sources), sources
    given = merge(sources)
    backend = "local" if arguments.dev else chosen_backend(given)
    defaults, preset = _short_run(arguments, given, backend)
    *weaker, command_line = sources
    settings = merge([*map(toml_source, defaults), *weaker, Source("command line", preset), command_line])
    return settings.model_copy(update={"backend": backend}), sources


def _short_run(arguments: argparse.Namespace, given: Settings, backend: str) -> tuple[list[Path], dict[str, Any]]:
    """Return the settings files of `backend`, and the settings of --ci and --ci-fast."""
    defaults = default_settings(given.task)
    preset: dict[str, Any] = {"train.steps": CI_STEPS} if arguments.ci else {}
    if backend == "verl":
        general, *recipes = verl_defaults(given.task, npu=trains_on_npu(given))
        defaults = [general, *defaults, *recipes]
    elif arguments.ci_fast:
        preset["data.natural_questions"] = 0  # on a CPU, natural questions take longer than the training step
    if backend == "local" and (arguments.ci or arguments.ci_fast) and _is_recipe_run(given):
        defaults = [_LAPTOP]
        preset.pop("train.steps", None)  # laptop.toml gives the steps
        if given.task.endswith(DESCRIBED):
            preset["data.task_types"] = ["lookup"]  # laptop.toml has the built-in task's name of this type
        if arguments.ci_fast:
            preset["train.questions_per_step"] = 2  # the step takes a quarter of the time of the recipe's step
        elif not {"steps", "max_minutes"} & (given.train.model_fields_set | given.local.model_fields_set):
            preset["local.max_minutes"] = _CI_MINUTES  # whoever gives the number of steps wants all of them
    return defaults, preset


def with_judge(settings: Settings) -> tuple[Settings, str]:
    """Return `settings` with the name of a judge in place of "auto", and a phrase that says which judge and why.

    config.json keeps the name, so that a resumed run has the same judge even if TEACHER_MODEL has changed.
    """
    name = judge_name(settings.judge, TeacherSettings())
    why = "" if settings.judge.name == name else f" (TEACHER_MODEL is {'set' if name == 'llm' else 'not set'})"
    judge = settings.judge.model_copy(update={"name": name})
    return settings.model_copy(update={"judge": judge}), f"judge {name}{why}"


def chosen_backend(settings: Settings) -> str:
    """Return the backend of `settings`. "auto" is verl on an NPU, or if verl and a GPU are installed; else local."""
    if settings.backend != "auto":
        return settings.backend
    has_gpu = verl_is_installed() and shutil.which("nvidia-smi")
    return "verl" if trains_on_npu(settings) or has_gpu else "local"


def _is_recipe_run(settings: Settings) -> bool:
    """Return whether laptop.toml fits the run: it trains the bundled model on generated questions."""
    if settings.model or settings.data.train_file:
        return False
    return settings.task.endswith(DESCRIBED) or (settings.task == "medical" and given_source(settings) is None)


def _head(plan: Plan, graded_by: str) -> list[str]:
    settings, task = plan.settings, plan.task
    asked = " and ".join(f"{len(questions)} {name}" for name, questions in plan.val.items())
    database = task.database_shown(settings)
    head = [
        f"{len(plan.train)} training questions, {asked} for validation, {graded_by}",
        f"Model {settings.model or 'SmolLM2-135M-Instruct (bundled)'}, database {database}",
    ]
    if leaves_out_natural(settings, task):
        head.append(f"No natural questions: they are about the sample in SQLite, and {database} is not")
    return head


def check_questions_of(plan: Plan, ui: Ui) -> tuple[list[Question], dict[str, list[Question]]]:
    """Check the databases and questions of `plan`; return its training questions and validation sets.

    Checks evenly spaced samples within about two seconds. Each benchmark is a sample of its own, so that its many
    right questions do not hide a fault of the training and template questions. With the judge `facts`, a prose
    reference without evidence gets evidence: the cells in the result of the gold SQL that the reference quotes.
    """
    settings, task, train, sets = plan.settings, plan.task, plan.train, dict(plan.val)
    task.check_databases(settings, (q.database for questions in (train, *sets.values()) for q in questions))
    samples = [_sample(train, sets.get(TEMPLATE, []))]
    samples += [_sample(questions) for name, questions in sets.items() if name != TEMPLATE]
    judge = plan.judge if isinstance(plan.judge, FactsJudge) else None
    everything: list[CheckedQuestion] = []
    with task.databases(settings) as databases:
        for sample in samples:
            with ui.progress("Checking the questions", len(sample)) as on_done:
                seconds = _CHECK_S / len(samples)
                checked = check_questions(sample, databases, task.words, judge, seconds=seconds, on_done=on_done)
            if problem := problem_of(checked, settings.judge.name):
                raise problem
            everything += checked
        if judge is not None:
            with ui.status("Looking for evidence"):
                train = with_derived_evidence(train, databases, task.words)
                sets = {name: with_derived_evidence(of, databases, task.words) for name, of in sets.items()}
    ui.say(_summary(everything, len(train) + sum(map(len, sets.values())), settings.judge.name))
    size = settings.train.questions_per_step
    if settings.backend == "verl" and len(train) < size:
        raise ConfigError(
            f"{len(train)} training questions do not fill a step of train.questions_per_step={size}, and verl trains "
            "on full steps only",
            hint=f"add training questions, or set train.questions_per_step to at most {len(train)}",
        )
    return train, sets


def _sample(*splits: Sequence[Question]) -> list[Question]:
    """Return an evenly spaced part of each split, shuffled: a check that runs out of time has seen each split."""
    sample = [question for questions in splits if questions for question in evenly_spaced(questions, _SAMPLE)]
    random.Random(0).shuffle(sample)
    return sample


def _summary(checked: Sequence[CheckedQuestion], total: int, judge_name: str) -> str:
    with_sql = [c for c in checked if c.needs_rows]
    graded = [c.earned for c in checked if c.earned is not None]
    parts = [f"{sum(c.returns_rows for c in with_sql)} of {len(with_sql)} gold queries return rows"] if with_sql else []
    if graded:
        parts.append(f"the references earn {fmean(graded):.2f} of 1.0 from the judge {judge_name}")
    of = f"{len(checked)} of {total}" if len(checked) < total else str(total)
    return f"Checked {of} questions: {'; '.join(parts) or 'no question has SQL to run'}"
