"""Check before a run that its questions fit its database, and that its judge pays for their references."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from sql_agent.cli.run_questions import TEMPLATE
from sql_agent.config.settings import Settings
from sql_agent.questions.derived_evidence import with_derived_evidence
from sql_agent.questions.question_check import CheckedQuestion, check_questions, problem_of
from sql_agent.reward import Judge
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.tasks.task import Task
from sql_agent.training.batching import evenly_spaced

_SECONDS = 2.0
_SAMPLE = 200  # of each split; more would not be checked in this time


def check_references(
    train: Sequence[Question], val: Mapping[str, Sequence[Question]], settings: Settings, task: Task, ui: Ui
) -> tuple[list[Question], dict[str, list[Question]]]:
    """Check the questions of a run within about two seconds, an evenly spaced sample where there are many.

    `val` are the sets of a validation; the training questions are checked together with those of TEMPLATE, the others
    by themselves, so that a large benchmark does not hide what is wrong. Returns both splits; with the judge "facts"
    references of prose without evidence get what their gold SQL returns and they say word for word. Raises ConfigError
    when fewer than 0.9 of the gold queries return rows, or when the references earn less than 0.9 on average. A judge
    that may ask over a network grades nothing here.
    """
    judge = _offline_judge(settings, task)
    sets = {name: list(questions) for name, questions in val.items()}
    samples = [_sample(train, sets.get(TEMPLATE, []))]
    samples += [_sample(questions) for name, questions in sets.items() if name != TEMPLATE]
    everything: list[CheckedQuestion] = []
    with task.databases(settings) as databases:
        for sample in samples:
            with ui.progress("Checking the questions", len(sample)) as on_done:
                seconds = _SECONDS / len(samples)
                checked = check_questions(sample, databases, task.words, judge, seconds=seconds, on_done=on_done)
            if problem := problem_of(checked, settings.judge.name):
                raise problem
            everything += checked
        if judge is not None:
            with ui.clock("Looking for evidence"):
                train = with_derived_evidence(train, databases)
                sets = {name: with_derived_evidence(questions, databases) for name, questions in sets.items()}
    ui.say(_summary(everything, len(train) + sum(map(len, sets.values())), settings.judge.name))
    return list(train), sets


def _sample(*splits: Sequence[Question]) -> list[Question]:
    """Return an evenly spaced part of each split, shuffled, so that the part checked in time is of all splits."""
    sample = [question for questions in splits if questions for question in evenly_spaced(questions, _SAMPLE)]
    random.Random(0).shuffle(sample)
    return sample


def _offline_judge(settings: Settings, task: Task) -> Judge | None:
    """Return the run's judge without its rescaling if it needs no network, else None."""
    unscaled = settings.judge.model_copy(update={"scale": None})
    judge = task.judge(settings.model_copy(update={"judge": unscaled}))
    return judge if isinstance(judge, FactsJudge) else None


def _summary(checked: Sequence[CheckedQuestion], total: int, judge_name: str) -> str:
    with_sql = [c for c in checked if c.needs_rows]
    graded = [c.earned for c in checked if c.earned is not None]
    parts = [f"{sum(c.returns_rows for c in with_sql)} of {len(with_sql)} gold queries return rows"] if with_sql else []
    if graded:
        parts.append(f"the references earn {fmean(graded):.2f} of 1.0 from the judge {judge_name}")
    of = f"{len(checked)} of {total}" if len(checked) < total else str(total)
    return f"Checked {of} questions: {'; '.join(parts) or 'they have no SQL to run'}"
