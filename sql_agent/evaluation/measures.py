"""Measure rollouts under the names that training reports, each figure as a mean over rollouts with its interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from sql_agent.evaluation.statistics import bootstrap_interval, share_interval
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.rollouts.metrics import found_nothing, has_recovered, is_accurate
from sql_agent.schemas import Lang, Outcome, Record, RolloutRecord, Usage

Readers = Mapping[Lang, Reader]
NO_TYPE = "(none)"


class Figure(Record):
    """A mean over `count` rollouts with its 95 % interval (see `share_interval`); a percentile has none."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int


class Totals(Record):
    """Sums over all rollouts of a group: what the agent's model used (`model`) and what grading used (`judge`)."""

    model: Usage = Usage()
    judge: Usage = Usage()


class Group(Record):
    """The figures of some questions by name. `questions` of them were graded, `dropped` could not be."""

    questions: int
    dropped: int
    figures: dict[str, Figure]
    totals: Totals


class SetResult(Record):
    """The figures of one set of questions: of all, of each task type, of each language, of each database named."""

    all: Group
    by_task_type: dict[str, Group]
    by_language: dict[str, Group]
    by_database: dict[str, Group] = Field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """A figure: its label, unit, and value for one graded rollout; None leaves the rollout out."""

    label: str
    unit: Literal["share", "number", "seconds", "dollars"]
    value: Callable[[RolloutRecord, Readers], float | None]


@dataclass(frozen=True)
class Price:
    """US dollars for one prompt token and for one completion token."""

    prompt: float
    completion: float

    def cost(self, usage: Usage) -> float:
        """Return the US dollars of `usage`."""
        return usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion


def price_of(model: str) -> Price | None:
    """Return the price of `model`, by the name that its endpoint gives it, in litellm's list; None where that has none.

    The list is the one that was installed with litellm.
    """
    import litellm  # noqa: PLC0415  slow to import, and only models that others serve have a price

    known = litellm.model_cost.get(model)
    if not known or "input_cost_per_token" not in known or "output_cost_per_token" not in known:
        return None
    return Price(float(known["input_cost_per_token"]), float(known["output_cost_per_token"]))


def _refuses(text: str, record: RolloutRecord, readers: Readers) -> bool | None:
    """Return whether `text` is the refusal sentence; None in a language that has none."""
    reader = readers.get(record.question.lang)
    return None if reader is None else reader.is_refusal(text)


def _refused(record: RolloutRecord, readers: Readers) -> float | None:
    refuses = _refuses(record.answer, record, readers)
    return None if refuses is None else float(refuses)


def _refused_where(*, answerable: bool) -> Callable[[RolloutRecord, Readers], float | None]:
    def value(record: RolloutRecord, readers: Readers) -> float | None:
        should = _refuses(record.question.answer, record, readers)
        return _refused(record, readers) if should is not None and should is not answerable else None

    return value


def _grounded(record: RolloutRecord, readers: Readers) -> float | None:
    """Return whether an answer's evidence was all read; None without evidence, and where nothing was answered."""
    if record.evidence_read is None or not record.answer or _refuses(record.answer, record, readers):
        return None
    return float(len(record.evidence_read) == len(record.question.evidence))


def _recovered(record: RolloutRecord, _: Readers) -> float | None:
    return float(has_recovered(record)) if any(map(found_nothing, record.calls)) else None


def _tokens(record: RolloutRecord, count: int) -> float | None:
    return float(count) if record.usage.prompt_tokens else None


# The names are those of rollouts/metrics.py where training reports the same; the others follow them.
MEASURES: dict[str, Measure] = {
    "accurate": Measure("accurate answers", "share", lambda r, _: float(is_accurate(r))),
    "reward/judge": Measure("judge score (0–1)", "number", lambda r, _: r.reward.judge if r.reward else None),
    "reward/mean": Measure("reward (0–1.1)", "number", lambda r, _: r.reward.total if r.reward else None),
    "agent/sql_ok": Measure(
        "with a successful query", "share", lambda r, _: float(any(c.answer.status == "ok" for c in r.calls))
    ),
    "agent/grounded": Measure("answers, all evidence read", "share", _grounded),
    "refused_answerable": Measure("answerable, but refused", "share", _refused_where(answerable=True)),
    "right_refusals": Measure("unanswerable, and refused", "share", _refused_where(answerable=False)),
    "agent/refused": Measure("refused, of all", "share", _refused),
    "agent/recovered": Measure("rows after an empty result", "share", _recovered),
    "agent/answered": Measure("ended with an answer", "share", lambda r, _: float(r.outcome is Outcome.ANSWERED)),
    "agent/tool_calls": Measure("queries", "number", lambda r, _: float(len(r.calls))),
    "agent/turns": Measure("turns", "number", lambda r, _: float(r.turns)),
    "agent/prompt_tokens": Measure("prompt tokens", "number", lambda r, _: _tokens(r, r.usage.prompt_tokens)),
    "agent/completion_tokens": Measure(
        "completion tokens", "number", lambda r, _: _tokens(r, r.usage.completion_tokens)
    ),
    "agent/seconds": Measure("seconds", "seconds", lambda r, _: r.seconds),
    "agent/cost_usd": Measure("cost in US$", "dollars", lambda r, _: r.usage.cost_usd),
}
PERCENTILES = {"agent/seconds_p50": ("seconds, median", 50), "agent/seconds_p95": ("seconds, 95th percentile", 95)}


def measure_set(
    records: Sequence[RolloutRecord], words: Mapping[Lang, Words], *, price: Price | None = None, seed: int = 0
) -> SetResult:
    """Measure one set of questions; `price` is that of the agent's model where it is known."""
    readers = {lang: Reader(of_lang) for lang, of_lang in words.items() if of_lang.refusals}
    priced = [_with_cost(record, price) for record in records]

    def group(of: Iterable[RolloutRecord]) -> Group:
        return _measure(list(of), readers, seed)

    return SetResult(
        all=group(priced),
        by_task_type={name: group(of) for name, of in _divided(priced, lambda r: r.question.task_type or NO_TYPE)},
        by_language={name: group(of) for name, of in _divided(priced, lambda r: r.question.lang)},
        by_database={name: group(of) for name, of in _divided(priced, lambda r: r.question.database or "") if name},
    )


def _with_cost(record: RolloutRecord, price: Price | None) -> RolloutRecord:
    if price is None or not record.usage.prompt_tokens:
        return record
    usage = record.usage.model_copy(update={"cost_usd": price.cost(record.usage)})
    return record.model_copy(update={"usage": usage})


def _divided(
    records: Iterable[RolloutRecord], key: Callable[[RolloutRecord], str]
) -> list[tuple[str, list[RolloutRecord]]]:
    groups: dict[str, list[RolloutRecord]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return sorted(groups.items())


def _measure(records: Sequence[RolloutRecord], readers: Readers, seed: int) -> Group:
    graded = [record for record in records if record.reward is not None]
    figures = {}
    for name, measure in MEASURES.items():
        values = [value for record in graded if (value := measure.value(record, readers)) is not None]
        if values:
            interval = share_interval if measure.unit == "share" else bootstrap_interval
            low, high = interval(values, seed=seed)
            figures[name] = Figure(value=sum(values) / len(values), low=low, high=high, count=len(values))
    for name, (_, percent) in PERCENTILES.items():
        if graded:
            value = float(np.percentile([record.seconds for record in graded], percent))
            figures[name] = Figure(value=value, count=len(graded))
    totals = Totals(
        model=sum((record.usage for record in records), Usage()),
        judge=sum((record.judge_usage for record in records), Usage()),
    )
    return Group(questions=len(graded), dropped=len(records) - len(graded), figures=figures, totals=totals)
