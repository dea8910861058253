"""Load the questions of a run: those to train on, and the sets of each validation."""

from __future__ import annotations

from collections import Counter

from sql_agent.config.settings import Settings
from sql_agent.data.task import Task
from sql_agent.errors import ConfigError
from sql_agent.evaluation.overlap import asked_in_both
from sql_agent.rl.batching import evenly_spaced, spread_over_types
from sql_agent.schemas import Question

TEMPLATE, NATURAL = "template", "natural"


def questions_of_run(settings: Settings, task: Task) -> tuple[list[Question], dict[str, list[Question]]]:
    """Return the training questions, and those of each validation by the name of their set.

    TEMPLATE are questions of the validation file, NATURAL those of the task's benchmark, spread evenly over its types;
    a set without questions is left out. Raises ConfigError when training would see a question of a validation, or when
    two validation questions have the same id.
    """
    train, template = task.questions(settings, "train"), task.questions(settings, "val")
    count = settings.data.natural_questions
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
