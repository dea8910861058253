"""Reproducible choices of questions: evenly spaced ones, and those of each training step."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from sql_agent.schemas import Question


def evenly_spaced(questions: Sequence[Question], count: int) -> list[Question]:
    """Return at most `count` questions, evenly spaced over the whole file, always the same ones."""
    step = max(1.0, len(questions) / count)
    return [questions[int(i * step)] for i in range(min(count, len(questions)))]


def spread_over_types(questions: Iterable[Question], count: int) -> list[Question]:
    """Return at most `count` questions, evenly spaced over the task types; always the same ones."""
    return evenly_spaced(sorted(questions, key=lambda q: q.task_type or ""), count)


def batch_for_step(questions: Sequence[Question], count: int, *, step: int, seed: int) -> list[Question]:
    """Return the `count` questions of a step (counted from 1).

    The steps pass over all questions again and again, each pass in a new random order. The result depends on `seed`
    and `step` alone, so a resumed run continues with exactly the questions that it would have had.
    """
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, index = divmod(position, len(questions))
        order = list(range(len(questions)))
        random.Random(f"{seed}-{epoch}").shuffle(order)
        chosen.append(questions[order[index]])
    return chosen
