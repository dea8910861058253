"""Load the questions of a run: those to train on, and the sets of each validation."""

from __future__ import annotations

from collections import Counter

from sql_agent.config.settings import Settings
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.errors import ConfigError
from sql_agent.evaluation.overlap import asked_in_both
from sql_agent.schemas import Question
from sql_agent.tasks.task import Task
from sql_agent.training.batching import evenly_spaced, spread_over_types

TEMPLATE, NATURAL = "template", "natural"


def questions_of_run(settings: Settings, task: Task) -> tuple[list[Question], dict[str, list[Question]]]:
    """Return the training questions, and those of each validation by the name of their set.

    TEMPLATE are questions of the validation file, NATURAL those of the task's benchmark, spread evenly over its types,
    unless `leaves_out_natural`; a set without questions is left out. Raises ConfigError when training would see a
    question of a validation, or when two validation questions have the same id.
    """
    train, template = task.questions(settings, "train"), task.questions(settings, "val")
    count = 0 if leaves_out_natural(settings, task) else settings.data.natural_questions
    natural = list(task.natural_questions(settings.lang)) if count else []
    shared = {q.question for q in asked_in_both((*template, *natural), train)}
    if shared:
        raise ConfigError(
            f"{len(shared)} validation questions are also training questions, such as {min(shared)!r}",
            hint="validate on questions that training never sees",
        )
    sets = {
        TEMPLATE: evenly_spaced(template, settings.data.val_questions),
        NATURAL: spread_over_types(natural, count) if natural else [],
    }
    ids = Counter(q.id for questions in sets.values() for q in questions)
    if twice := [key for key, times in ids.items() if times > 1]:
        raise ConfigError(
            f"{len(twice)} ids of validation questions are also those of the natural benchmark, such as {twice[0]!r}",
            hint="give them other ids, or set data.natural_questions=0 where they are the benchmark itself",
        )
    return train, {name: questions for name, questions in sets.items() if questions}


def leaves_out_natural(settings: Settings, task: Task) -> bool:
    """Return whether a run is not validated on the task's benchmark, because its database is on a server.

    The benchmark is about SQLite files, so its prompts and statements would be in another dialect than those trained.
    """
    asked = bool(settings.data.natural_questions and task.natural_questions(settings.lang))
    on_server = settings.agent.tool != "mcp" and isinstance(task.database_source(settings), ServerAddress)
    return asked and on_server
