"""Select the charts of a report and the validation table from the metrics of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sql_agent.runs.console import TextTable

MetricsLine = Mapping[str, Any]  # a line of metrics.jsonl or validation.jsonl

# Title, unit, and curve labels by metric. A metric that a run does not have is left out.
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
# Metrics of the judge that are not criteria.
_NOT_CRITERIA = {"failed", "requests", "prompt_tokens", "completion_tokens", "cache_hits", "cost_usd", "raw"}
_FIGURES = {
    "questions": "questions",
    "reward/mean": "reward (0–1.1)",
    "accurate": "accurate: the form that is paid (judge >= 0.8)",
    "correct": "correct: what a person accepts",
    "agent/sql_ok": "with a successful query",
    "refused_answerable": "answerable, but refused",
    "right_refusals": "unanswerable, and refused",
}


def charts(steps: Sequence[MetricsLine], validations: Sequence[MetricsLine]) -> list[dict[str, Any]]:
    """Return the charts of a run, each with a title, a unit and curves; a curve has a label and points (step, value).

    Charts without points are left out.
    """
    sets = _validation_sets(validations)
    names = {name for step in steps for name in step}
    # The criteria of a panel's members, such as judge/first.facts, are in metrics.jsonl only.
    of_judge = sorted(name.removeprefix("judge/") for name in names if name.startswith("judge/") and "." not in name)
    stages = sorted(name for name in names if name.startswith("timing_s/") and name != "timing_s/step")  # of verl
    timing = {name: name.removeprefix("timing_s/") for name in stages}
    drawn = [
        ("Reward", "reward (0–1.1)", _curves(steps, _REWARD) + _validated(validations, sets, "reward/mean")),
        ("Accurate answers", "share of the questions", _validated(validations, sets, "accurate")),
        ("Correct answers", "share of the questions", _validated(validations, sets, "correct")),
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
    return [{"title": title, "unit": unit, "curves": curves} for title, unit, curves in drawn if curves]


def _curves(lines: Sequence[MetricsLine], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a curve for each metric of `labels` that `lines` contain."""
    found = {
        label: [[line["step"], line[name]] for line in lines if line.get(name) is not None]
        for name, label in labels.items()
    }
    return [{"label": label, "points": points} for label, points in found.items() if points]


def _validated(validations: Sequence[MetricsLine], sets: Sequence[str], metric: str) -> list[dict[str, Any]]:
    return _curves(validations, {f"val/{name}/{metric}": f"validation, {name}" for name in sets})


def _validation_sets(validations: Sequence[MetricsLine]) -> list[str]:
    """Return the names of the validation sets, in the order of the first line."""
    keys = dict.fromkeys(key for row in validations for key in row)
    return [key.split("/")[1] for key in keys if key.startswith("val/") and key.endswith("/questions")]


def _kinds_of(validations: Sequence[MetricsLine], name: str) -> list[str]:
    """Return the kinds of question in the set `name`, in alphabetical order."""
    prefix = f"val/{name}/accurate/"
    return sorted({key.removeprefix(prefix) for row in validations for key in row if key.startswith(prefix)})


def validation_table(validations: Sequence[MetricsLine]) -> TextTable:
    """Return the figures of the first and the last validation of each set, then accuracies by kind of question.

    A figure that was not measured is "–".
    """
    sets = _validation_sets(validations)
    ends = [validations[0], validations[-1]][: len(validations)] if validations else []
    shown = [(name, row) for name in sets for row in ends]

    def texts(key: str) -> list[str]:
        return [_text(row.get(f"val/{name}/{key}")) for name, row in shown]

    measured = {key for name in sets for row in ends for key in _FIGURES if f"val/{name}/{key}" in row}
    kinds = sorted({kind for name in sets for kind in _kinds_of(validations, name)})
    return TextTable(
        title="Validation, greedy",
        columns=[f"{name}, step {row['step']}" for name, row in shown],
        sections=[
            [(label, texts(key)) for key, label in _FIGURES.items() if key in measured],
            [(f"accurate: {kind.replace('_', ' ')}", texts(f"accurate/{kind}")) for kind in kinds],
        ],
        note="" if shown else "No validation was finished.",
    )


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
