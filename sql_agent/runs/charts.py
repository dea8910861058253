"""Make charts, tables and alarms from the metrics of a run; an alarm is a symptom of reward hacking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

from sql_agent.runs.console import TableRow, TextTable
from sql_agent.runs.run_folder import UNTRAINED

MetricsLine = Mapping[str, Any]  # a line of metrics.jsonl or validation.jsonl
Lines = Sequence[MetricsLine]

# Title, unit, and {metric: label of its curve}. Metrics that a run lacks are left out.
_CHARTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "What the agent does",
        "per rollout",
        {
            "agent/turns": "turns",
            "agent/tool_calls": "queries",
            "agent/sql_ok": "share with a successful query",
            "agent/empty_results": "share of queries without a row",
            "agent/recovered": "share that got rows after none",
            "agent/refused": "share that refused",
        },
    ),
    ("Length", "sampled tokens per rollout", {"agent/completion_tokens": "tokens"}),
    ("Entropy", "nats per token", {"policy/entropy": "sampled, mean of -ln p", "actor/entropy": "trainer's"}),
    ("What GRPO can compare", "share of the groups", {"groups/informative": "groups whose rewards differ"}),
    (
        "Rollouts of a step",
        "rollouts",
        {
            "rollouts/enqueued": "enqueued",
            "rollouts/finished": "finished",
            "rollouts/with_triplets": "with triplets",
            "rollouts/kept": "kept",
            "rollouts/split": "split into sequences",
        },
    ),
    ("Gradient", "norm", {"update/grad_norm": "gradient norm"}),
    (
        "Update",
        "share or nats",
        {
            "update/clip_fraction": "clipped share",
            "actor/pg_clipfrac": "clipped share",
            "actor/ppo_kl": "KL to the sampling policy",
        },
    ),
)
_REWARD = {"reward/mean": "reward", "reward/judge": "judge's part", "reward/rule": "rule's part"}
# Metrics judge/NAME whose NAME is not a criterion of the judge.
_NOT_CRITERIA = {"failed", "requests", "prompt_tokens", "completion_tokens", "cache_hits", "cost_usd", "raw"}
_ANSWERS = {"accurate": "accurate", "correct": "correct"}
_RESULT = {
    **_ANSWERS,
    "reward/mean": "reward (0–1.1)",
    "refused_answerable": "answerable, but refused",
    "right_refusals": "unanswerable, and refused",
}
_NOTE = "Accurate: in the rewarded form (judge >= 0.8). Correct: what a person accepts. In brackets: 95 % intervals."
_WILSON_Z = 1.96  # normal quantile for a 95 % interval
_STEPS = 5  # steps over which the start and the end of a run are averaged
_HALF, _DOUBLE = 0.5, 2.0
_FURTHER = 0.2  # a share or a score that grows more raises an alarm


def charts(steps: Lines, validations: Lines, sft: Lines) -> list[dict[str, Any]]:
    """Return the charts of a run: a title, a unit and curves, each with a label and points [step, value].

    A chart without any curve of at least two points is left out.
    """
    validations = of_grpo(validations)
    sets = _validation_sets(validations)
    names = {name for step in steps for name in step}
    # Without the criteria of the members of a panel, such as judge/first.facts.
    of_judge = sorted(name.removeprefix("judge/") for name in names if name.startswith("judge/") and "." not in name)
    # verl measures several parts of a step.
    parts = sorted(name for name in names if name.startswith("timing_s/") and name != "timing_s/step")
    timing = {name: name.removeprefix("timing_s/") for name in parts}
    drawn = [
        ("Reward", "reward (0–1.1)", _curves(steps, _REWARD) + _validated(validations, sets, "reward/mean")),
        ("Accurate answers", "share of the questions", _validated(validations, sets, "accurate")),
        ("Correct answers", "share of the questions", _validated(validations, sets, "correct")),
        ("Supervised fine-tuning", "loss, nats a token", _curves(sft, {"loss": "loss"})),
        *(
            (
                f"Accurate by kind, {name}",
                "share of the questions",
                _curves(validations, {f"val/{name}/accurate/{kind}": kind.replace("_", " ") for kind in kinds}),
            )
            for name in sets
            if len(kinds := _kinds_of(validations, name)) > 1
        ),
        *((title, unit, _curves(steps, labels)) for title, unit, labels in _CHARTS),
        (
            "What the judge sees",
            "mean over the rollouts",
            _curves(steps, {f"judge/{name}": name for name in of_judge if name not in _NOT_CRITERIA}),
        ),
        (
            "Time of a step",
            "seconds",
            _curves(steps, timing or {"timing/rollout_s": "rollouts", "timing/update_s": "update"}),
        ),
    ]
    return [
        {"title": title, "unit": unit, "curves": curves}
        for title, unit, curves in drawn
        if any(len(curve["points"]) > 1 for curve in curves)
    ]


def of_grpo(validations: Lines) -> list[MetricsLine]:
    """Return `validations` without the validation before supervised fine-tuning."""
    return [line for line in validations if line["step"] != UNTRAINED]


def _curves(lines: Lines, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    found = {
        label: [[line["step"], line[name]] for line in lines if line.get(name) is not None]
        for name, label in labels.items()
    }
    return [{"label": label, "points": points} for label, points in found.items() if points]


def _validated(validations: Lines, sets: Sequence[str], metric: str) -> list[dict[str, Any]]:
    return _curves(validations, {f"val/{name}/{metric}": f"validation, {name}" for name in sets})


def _validation_sets(validations: Lines) -> list[str]:
    keys = dict.fromkeys(key for row in validations for key in row)
    return [key.split("/")[1] for key in keys if key.startswith("val/") and key.endswith("/questions")]


def _kinds_of(validations: Lines, name: str) -> list[str]:
    prefix = f"val/{name}/accurate/"
    return sorted({key.removeprefix(prefix) for row in validations for key in row if key.startswith(prefix)})


class Stage(NamedTuple):
    """A stage of training, such as "after GRPO, step 20", with its line of validation.jsonl."""

    name: str
    line: MetricsLine


def stages(validations: Lines, *, sft_steps: int, run: str = "") -> list[Stage]:
    """Return the stages that were validated: before supervised fine-tuning, before GRPO, and after the last step.

    The name of each stage starts with `run`, if given.
    """
    grpo = of_grpo(validations)
    untrained = [line for line in validations if line["step"] == UNTRAINED]
    ends = [*untrained, *grpo[:1], *grpo[1:][-1:]]
    words = {UNTRAINED: "untrained", 0: "supervised start" if sft_steps else "untrained"}
    names = [words.get(line["step"], f"after GRPO, step {line['step']}") for line in ends]
    return [Stage(f"{run} {name}".strip(), line) for name, line in zip(names, ends, strict=True)]


def result_table(measured: Sequence[Stage]) -> TextTable:
    """Return the table of results, with a section for each validation set and a column for each stage."""
    sections = [
        [(f"{name}: questions", texts("questions")), *((label, texts(key)) for key, label in _RESULT.items())]
        for name in _validation_sets([stage.line for stage in measured])
        if (texts := partial(_texts, measured, name))
    ]
    sections = [[row for row in rows if any(text != "–" for text in row[1])] for rows in sections]
    note = _NOTE if measured else "No validation was finished."
    return TextTable("Result: validation, greedy", [stage.name for stage in measured], sections, note)


def kinds_table(measured: Sequence[Stage]) -> TextTable:
    lines = [stage.line for stage in measured]
    sections: list[list[TableRow]] = [
        [
            (f"{name}: with a successful query", _texts(measured, name, "agent/sql_ok")),
            *(
                (f"accurate: {kind.replace('_', ' ')}", _texts(measured, name, f"accurate/{kind}"))
                for kind in _kinds_of(lines, name)
            ),
        ]
        for name in _validation_sets(lines)
    ]
    return TextTable("By kind of question", [stage.name for stage in measured], sections)


def _texts(measured: Sequence[Stage], name: str, key: str) -> list[str]:
    return [_figure(stage.line, name, key) for stage in measured]


def _figure(line: MetricsLine, name: str, key: str) -> str:
    """Format the metric `key` of the validation set `name`; a share of answers gets a 95 % interval."""
    value, count = line.get(f"val/{name}/{key}"), line.get(f"val/{name}/questions")
    if value is None:
        return "–"
    if key in _ANSWERS and count:
        low, high = (100 * bound for bound in wilson_interval(value, count))
        return f"{100 * value:.1f} % [{low:.0f}, {high:.0f}]"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def shares(validations: Lines, key: str) -> str:
    """Return the metric `key` of each set in the first and the last validation, such as "template 30 → 60 %"."""
    validations = of_grpo(validations)
    ends = validations[:1] + validations[-1:]
    texts = [
        f"{name} {' → '.join(f'{100 * line[full]:.0f}' for line in ends)}\u00a0%"
        for name in _validation_sets(validations)
        if all((full := f"val/{name}/{key}") in line for line in ends)
    ]
    return "; ".join(texts) or "–"


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share of `count` cases (Wilson 1927)."""
    weight = _WILSON_Z**2 / count
    middle = (share + weight / 2) / (1 + weight)
    half = _WILSON_Z * sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Alarm:
    """A symptom of reward hacking: a `text` with placeholders such as {a}, for translation, and their `values`."""

    text: str
    values: Mapping[str, str]

    def __str__(self) -> str:
        return self.text.format_map(self.values)


def alarms(steps: Lines, validations: Lines) -> dict[str, Alarm]:
    """Return {symptom: alarm} for the symptoms of reward hacking; empty for fewer than ten steps.

    The last five training steps are compared with the first five, and the last validation with the first. In a
    published run with a model as the judge, the score rose to 0.99 while tool calls per task fell from 0.91 to 0.13.
    """
    if len(steps) < 2 * _STEPS:
        return {}
    found: dict[str, Alarm] = {}
    queries, length = _ends(steps, "agent/tool_calls"), _ends(steps, "agent/completion_tokens")
    refused, judge = _ends(steps, "refused_answerable"), _ends(steps, "reward/judge")
    if queries and queries[1] < _HALF * queries[0]:
        found["queries"] = _alarm("queries a rollout fell from {a} to {b}", "{:.2f}", *queries)
    if length and not _HALF <= length[1] / max(length[0], 1e-9) <= _DOUBLE:
        found["length"] = _alarm("the tokens of a rollout went from {a} to {b}", "{:.0f}", *length)
    if refused and refused[1] > refused[0] + _FURTHER:
        found["refusals"] = _alarm("refusals of answerable questions rose from {a} to {b}", "{:.0%}", *refused)
    correct = [share for line in validations if (share := _correct(line)) is not None]
    if judge and len(correct) > 1 and judge[1] - correct[-1] > judge[0] - correct[0] + _FURTHER:
        text = "the judge's score rose from {a} to {b}, the correct answers of the validation went from {c} to {d}"
        ends = {"a": f"{judge[0]:.2f}", "b": f"{judge[1]:.2f}", "c": f"{correct[0]:.0%}", "d": f"{correct[-1]:.0%}"}
        found["gap"] = Alarm(text, ends)
    return found


def _alarm(text: str, form: str, before: float, after: float) -> Alarm:
    return Alarm(text, {"a": form.format(before), "b": form.format(after)})


def _ends(steps: Lines, name: str) -> tuple[float, float] | None:
    """Return the mean of the metric `name` over the first five steps and over the last five; None if one is missing."""
    ends = [
        [value for line in part if isinstance(value := line.get(name), int | float)]
        for part in (steps[:_STEPS], steps[-_STEPS:])
    ]
    return (fmean(ends[0]), fmean(ends[1])) if all(ends) else None


def _correct(line: MetricsLine) -> float | None:
    shares = [
        v for k, v in line.items() if k.startswith("val/") and k.endswith("/correct") and isinstance(v, int | float)
    ]
    return fmean(shares) if shares else None
