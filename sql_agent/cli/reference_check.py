"""Check before a run that its questions fit its database, and that their references earn what a right answer should."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

from sql_agent.config.settings import Settings
from sql_agent.data.derived_evidence import with_derived_evidence
from sql_agent.data.question_check import CheckedQuestion, check_questions, problem_of
from sql_agent.data.task import Task
from sql_agent.reward import Judge
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.rl.batching import evenly_spaced
from sql_agent.schemas import Question
from sql_agent.tracking.console import Ui

_SECONDS = 2.0
_SAMPLE = 200  # of each split; a larger one would not be through in this time


def check_references(
    train: Sequence[Question], val: Sequence[Question], settings: Settings, task: Task, ui: Ui
) -> tuple[list[Question], list[Question]]:
    """Check the questions of a run within about two seconds, an evenly spaced sample where there are many.

    Returns both splits; with the judge "facts" references of prose without evidence get what their gold SQL returns
    and they say word for word. Raises ConfigError when fewer than 0.9 of the gold queries return rows, or when the
    references earn less than 0.9 on average. A judge that may ask over a network grades nothing here.
    """
    judge = _offline_judge(settings, task)
    sample = [*evenly_spaced(train, _SAMPLE), *evenly_spaced(val, _SAMPLE)]
    random.Random(0).shuffle(sample)  # so that whatever time allows is of both splits
    with task.databases(settings) as databases:
        with ui.progress("Checking the questions", len(sample)) as on_done:
            checked = check_questions(sample, databases, task.words, judge, seconds=_SECONDS, on_done=on_done)
        if problem := problem_of(checked, settings.judge.name):
            raise problem
        if judge is not None:
            with ui.clock("Looking for evidence"):
                train, val = with_derived_evidence(train, databases), with_derived_evidence(val, databases)
    ui.say(_summary(checked, len(train) + len(val), settings.judge.name))
    return list(train), list(val)


def _offline_judge(settings: Settings, task: Task) -> Judge | None:
    """Return the judge that needs no network, without a rescaling of its scores; None where the run has another."""
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
