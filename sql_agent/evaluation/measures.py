"""Compute figures of rollouts, such as accuracy: means with 95 % intervals, under the names of training metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from sql_agent.evaluation.statistics import bootstrap_interval, share_interval
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.rollouts.metrics import found_nothing, has_recovered, is_accurate, is_correct
from sql_agent.schemas import Lang, Outcome, Question, Record, RolloutRecord

Readers = Mapping[Lang, Reader]
Value = Callable[[RolloutRecord, Readers], float | None]
SAMPLE = "#"  # separates a question's id and the number of a sample


class Figure(Record):
    """A mean over `count` rollouts with its 95 % interval from `low` to `high`, or a percentile without an interval."""

    value: float
    low: float | None = None
    high: float | None = None
    count: int


class Group(Record):
    """The figures of a group of questions, by name; `questions` were graded, `dropped` were not."""

    questions: int
    dropped: int
    figures: dict[str, Figure]


class SetResult(Record):
    """The figures of one question set: of all its questions, and by task type, language and database."""

    all: Group
    by_task_type: dict[str, Group]
    by_language: dict[str, Group]
    by_database: dict[str, Group] = Field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """How a figure is computed and shown.

    `value` returns the value of one graded rollout; None leaves the rollout out. A figure with the `label` "" is only
    in the JSON. The figure is the `percentile` (0–100) of the values, by default their mean.
    """

    label: str
    unit: Literal["share", "number", "seconds", "dollars"]
    value: Value = lambda _record, _readers: None
    percentile: int | None = None


# For k samples of each question. Chen et al. 2021 (arXiv:2107.03374) define pass@k, and Yao et al. 2024
# (arXiv:2406.12045, tau-bench) define pass^k.
SAMPLE_MEASURES: dict[str, Measure] = {
    "pass_at_1": Measure("pass@1: correct answers", "share"),
    "pass_at_k": Measure("pass@k: correct at least once", "share"),
    "pass_all_k": Measure("pass^k: correct every time", "share"),
}


@dataclass(frozen=True)
class Price:
    """The price of a prompt token and of a completion token in US dollars."""

    prompt: float
    completion: float

    def added_to(self, record: RolloutRecord) -> RolloutRecord:
        """Return `record` with the cost of its tokens, if the model's server counted tokens."""
        if not (usage := record.usage).prompt_tokens:
            return record
        cost = usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion
        return record.model_copy(update={"usage": usage.model_copy(update={"cost_usd": cost})})


def price_of(model: str) -> Price | None:
    """Return the price of the remote model `model` from litellm's price list; None if the list lacks the model."""
    import litellm  # noqa: PLC0415  slow to import, and only remote models have a price

    known = litellm.model_cost.get(model, {})
    prompt, completion = known.get("input_cost_per_token"), known.get("output_cost_per_token")
    return None if prompt is None or completion is None else Price(float(prompt), float(completion))


def _refuses(text: str, record: RolloutRecord, readers: Readers) -> bool | None:
    """Return whether `text` is the refusal sentence; None in a language without such a sentence."""
    reader = readers.get(record.question.lang)
    return None if reader is None else reader.is_refusal(text)


def _refused(record: RolloutRecord, readers: Readers) -> bool | None:
    return _refuses(record.answer, record, readers)


def _where(value: Value, *, should_refuse: bool) -> Value:
    return lambda r, readers: value(r, readers) if _refuses(r.question.answer, r, readers) is should_refuse else None


def _grounded(record: RolloutRecord, readers: Readers) -> bool | None:
    """Return whether the queries read all evidence; None without evidence or answer, and for a refusal."""
    if record.evidence_read is None or not record.answer or _refused(record, readers):
        return None
    return len(record.evidence_read) == len(record.question.evidence)


def _recovered(record: RolloutRecord, _: Readers) -> bool | None:
    return has_recovered(record) if any(map(found_nothing, record.calls)) else None


def _tokens(record: RolloutRecord, count: int) -> int | None:
    return count if record.usage.prompt_tokens else None


# A figure that training reports too has the same name in rollouts/metrics.py.
ANSWER_MEASURES: dict[str, Measure] = {
    "accurate": Measure("accurate: in the rewarded form", "share", lambda r, _: is_accurate(r)),
    "correct": Measure("correct: what a person accepts", "share", lambda r, _: is_correct(r)),
    "reward/judge": Measure("judge score (0–1)", "number", lambda r, _: r.reward.judge if r.reward else None),
    "reward/mean": Measure("reward (up to 1.1)", "number", lambda r, _: r.reward.total if r.reward else None),
    "agent/sql_ok": Measure(
        "with a successful query", "share", lambda r, _: any(c.answer.status == "ok" for c in r.calls)
    ),
    "agent/grounded": Measure("answers, all evidence read", "share", _grounded),
    "refused_answerable": Measure("answerable, but refused", "share", _where(_refused, should_refuse=False)),
    "right_refusals": Measure("unanswerable, and refused", "share", _where(_refused, should_refuse=True)),
    "agent/refused": Measure("", "share", _refused),
    "agent/recovered": Measure("rows after an empty result", "share", _recovered),
    "agent/answered": Measure("ended with an answer", "share", lambda r, _: r.outcome is Outcome.ANSWERED),
}
WORK_MEASURES: dict[str, Measure] = {
    "agent/tool_calls": Measure("queries", "number", lambda r, _: len(r.calls)),
    "agent/turns": Measure("turns", "number", lambda r, _: r.turns),
    "agent/prompt_tokens": Measure("prompt tokens", "number", lambda r, _: _tokens(r, r.usage.prompt_tokens)),
    "agent/completion_tokens": Measure(
        "completion tokens", "number", lambda r, _: _tokens(r, r.usage.completion_tokens)
    ),
    "agent/seconds": Measure("seconds", "seconds", lambda r, _: r.seconds),
    "agent/seconds_p50": Measure("seconds, median", "seconds", lambda r, _: r.seconds, 50),
    "agent/seconds_p95": Measure("seconds, 95th percentile", "seconds", lambda r, _: r.seconds, 95),
    "agent/cost_usd": Measure("cost in US$", "dollars", lambda r, _: r.usage.cost_usd),
}


def reliability_measures(questions: int) -> dict[str, Measure]:
    """Return the measures of a model that may refuse, with the reliability score of Lee et al. 2024 (EHRSQL).

    RS(c) is the mean of points: 100 for a right answer or a right refusal, 0 for the refusal of an answerable question,
    and -100 c for anything else. In RS(N), c is the number of `questions`.
    """
    penalties = {"0": 0, "5": 5, "10": 10, "N": questions}
    scores = {f"rs_{c}".lower(): Measure(f"RS({c})", "number", _points(value)) for c, value in penalties.items()}
    return scores | {
        "accurate_answerable": Measure(
            "answerable, and accurate", "share", _where(lambda r, _: is_accurate(r), should_refuse=False)
        ),
        "refusal_precision": Measure("refused, and unanswerable", "share", _precision),
    }


def _points(penalty: int) -> Value:
    def value(record: RolloutRecord, readers: Readers) -> float | None:
        refused = _refused(record, readers)
        return None if refused is None else 100 if is_accurate(record) else 0 if refused else -100 * penalty

    return value


def _precision(record: RolloutRecord, readers: Readers) -> bool | None:
    return _refuses(record.question.answer, record, readers) if _refused(record, readers) else None


def in_samples(questions: Sequence[Question], samples: int) -> list[Question]:
    """Return each question `samples` times, with the number of the sample in the id."""
    if samples == 1:
        return list(questions)
    numbers = range(1, samples + 1)
    return [q.model_copy(update={"id": f"{q.id}{SAMPLE}{number}"}) for q in questions for number in numbers]


def without_samples(questions: Sequence[Question], samples: int) -> list[Question]:
    """Return the questions from which `in_samples` made `questions`."""
    if samples == 1:
        return list(questions)
    return [q.model_copy(update={"id": q.id.rpartition(SAMPLE)[0]}) for q in questions[::samples]]


def measure_set(
    records: Sequence[RolloutRecord],
    words: Mapping[Lang, Words],
    *,
    price: Price | None = None,
    seed: int = 0,
    samples: int = 1,
    reliability: bool = False,
) -> SetResult:
    """Return the figures of the rollouts of one question set, in which each question was asked `samples` times.

    `reliability` adds the figures of `reliability_measures`.
    """
    readers = {lang: Reader(of_lang) for lang, of_lang in words.items() if of_lang.refusals}
    priced = list(map(price.added_to, records)) if price else records

    def groups(key: Callable[[RolloutRecord], str]) -> dict[str, Group]:
        divided: dict[str, list[RolloutRecord]] = defaultdict(list)
        for record in priced:
            divided[key(record)].append(record)
        return {name: measured(divided[name]) for name in sorted(divided) if name}

    def measured(of: Sequence[RolloutRecord]) -> Group:
        graded = [record for record in of if record.reward is not None]
        figures = _sample_figures(graded, seed, samples) if samples > 1 else {}
        reliable = reliability_measures(len(graded)) if reliability else {}
        for name, measure in (reliable | ANSWER_MEASURES | WORK_MEASURES).items():
            if values := [float(value) for record in graded if (value := measure.value(record, readers)) is not None]:
                figures[name] = _figure(values, measure, seed)
        return Group(questions=len(graded), dropped=len(of) - len(graded), figures=figures)

    return SetResult(
        all=measured(priced),
        by_task_type=groups(lambda r: r.question.task_type or "(none)"),
        by_language=groups(lambda r: r.question.lang),
        by_database=groups(lambda r: r.question.database or ""),
    )


def _figure(values: Sequence[float], measure: Measure, seed: int) -> Figure:
    count = len(values)
    if measure.percentile is not None:
        return Figure(value=float(np.percentile(values, measure.percentile)), count=count)
    if measure.unit != "share" and min(values) == max(values):  # a bootstrap of equal values gives no interval
        return Figure(value=values[0], count=count)
    low, high = (share_interval if measure.unit == "share" else bootstrap_interval)(values, seed=seed)
    return Figure(value=sum(values) / count, low=low, high=high, count=count)


def _sample_figures(graded: Sequence[RolloutRecord], seed: int, samples: int) -> dict[str, Figure]:
    """Return the figures of `SAMPLE_MEASURES` over the questions whose samples are all graded."""
    correct: dict[str, list[bool]] = defaultdict(list)
    for record in graded:
        correct[record.question.id.rpartition(SAMPLE)[0]].append(is_correct(record))
    complete = [answers for answers in correct.values() if len(answers) == samples]
    if not complete:
        return {}
    shares = {
        "pass_at_1": [sum(answers) / samples for answers in complete],
        "pass_at_k": [float(any(answers)) for answers in complete],
        "pass_all_k": [float(all(answers)) for answers in complete],
    }
    return {name: _figure(of, SAMPLE_MEASURES[name], seed) for name, of in shares.items()}
