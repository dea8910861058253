"""Check before a training run starts all that could end it early: packages, ports, database, judge, questions."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.cli.reference_check import check_references
from sql_agent.cli.run_questions import questions_of_run
from sql_agent.cli.train_settings import verl_is_installed
from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.reward import Judge
from sql_agent.rollouts.preflight import check_opentelemetry
from sql_agent.runs.console import Ui
from sql_agent.runs.trackers.trackers import check_trackers
from sql_agent.schemas import Question
from sql_agent.system.sockets import bind, bind_local
from sql_agent.tasks.task import Task
from sql_agent.training.verl import config as verl_config


def check_before_start(
    settings: Settings, task: Task, ui: Ui
) -> tuple[list[Question], dict[str, list[Question]], Judge]:
    """Open everything once, so that a wrong path or key is found before the run starts.

    Returns the questions to train on, the sets to validate on by name, and the judge. Raises a SqlAgentError for what
    is missing or wrong.
    """
    check_opentelemetry()
    check_trackers(settings)
    _check_minibatches(settings)
    if settings.backend == "verl":
        _check_verl(settings)
    else:
        _check_context(settings)
    if settings.runner.store_port:
        bind_local(settings.runner.store_port).close()
    task.open_database(settings).close()
    judge = task.judge(settings)
    train, val = questions_of_run(settings, task)
    task.check_databases(settings, (q.database for questions in (train, *val.values()) for q in questions))
    train, val = check_references(train, val, settings, task, ui)
    if settings.backend == "verl":
        _check_full_step(len(train), settings)
    return train, val, judge


def _check_minibatches(settings: Settings) -> None:
    train = settings.train
    if train.minibatches > train.questions_per_step:
        raise ConfigError(
            f"train.minibatches={train.minibatches} is more than train.questions_per_step={train.questions_per_step}, "
            "and a minibatch holds one question at least",
            hint="lower train.minibatches, or ask more questions in a step",
        )


def check_demonstrations(train: Sequence[Question], settings: Settings) -> None:
    """Raise ConfigError when supervised fine-tuning is asked for and no question of `train` has SQL to learn from."""
    if settings.sft.steps and not any(question.statements for question in train):
        raise ConfigError(
            "no training question has gold SQL, so there is nothing to fine-tune on before GRPO",
            hint="add a column `sql`, or set sft.steps=0 for a model that queries by itself",
        )


def _check_full_step(questions: int, settings: Settings) -> None:
    size = settings.train.questions_per_step
    if questions < size:
        raise ConfigError(
            f"{questions} training questions do not fill a step of train.questions_per_step={size}, and verl trains "
            "on full steps only",
            hint=f"give more questions, or train.questions_per_step={questions} at most",
        )


def _check_context(settings: Settings) -> None:
    reply, context = settings.agent.max_tokens, settings.local.max_context
    if reply >= context:
        raise ConfigError(
            f"agent.max_tokens={reply} leaves no room for a prompt in local.max_context={context}",
            hint="lower agent.max_tokens, or raise local.max_context up to what the model was made for",
        )


def _check_verl(settings: Settings) -> None:
    if not verl_is_installed():
        raise ConfigError(
            "the verl backend is not installed",
            hint="run `uv sync --extra gpu`, or use --backend local on this machine",
        )
    if not settings.model:
        raise ConfigError("the verl backend needs a model", hint="give --model a Hugging Face folder or id")
    verl_config.check(settings)
    try:
        bind(settings.verl.host).close()
    except TrainingError as error:
        raise ConfigError(
            f"verl.host is not an address of this host: {error.message}",
            hint="set it to the one at which the other hosts of the Ray cluster reach this host",
        ) from None
