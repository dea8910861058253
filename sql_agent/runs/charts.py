"""Choose the charts of a report, and lay out the validation table, from the metrics of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sql_agent.runs.text_layout import TextTable

MetricsLine = Mapping[str, Any]  # a line of metrics.jsonl or validation.jsonl

# Counts and costs of the judge are not criteria.
_NOT_CRITERIA = {
    f"judge/{name}"
    for name in ("failed", "requests", "prompt_tokens", "completion_tokens", "cache_hits", "cost_usd", "raw")
}
# Title, unit and curve labels by metric of each chart. A metric that a run does not have is left out.
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
)
_UPDATE: tuple[tuple[str, str, dict[str, str]], ...] = (
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
_STAGES = {"timing/rollout_s": "rollouts", "timing/update_s": "update"}
_FIGURES = {
    "questions": "questions",
    "reward/mean": "reward (0–1.1)",
    "accurate": "accurate answers (judge >= 0.8)",
    "agent/sql_ok": "with a successful query",
    "refused_answerable": "answerable, but refused",
    "right_refusals": "unanswerable, and refused",
}
_KINDS = "accurate/"


def charts(steps: Sequence[MetricsLine], validations: Sequence[MetricsLine]) -> list[dict[str, Any]]:
    """Return the charts of a run, each with a title, a unit and curves; a curve has a label and points (step, value).

    Charts without points are left out.
    """
    sets = validation_sets(validations)
    drawn = [
        ("Reward", "reward (0–1.1)", [*_curves(steps, _REWARD), *_validated(validations, sets, "reward/mean")]),
        ("Accurate answers", "share of the questions", _validated(validations, sets, "accurate")),
        *(
            (f"Accurate by kind, {name}", "share of the questions", _kinds(validations, name))
            for name in sets
            if len(kinds_of(validations, name)) > 1
        ),
        *((title, unit, _curves(steps, names)) for title, unit, names in _CHARTS),
        ("What the judge sees", "mean over the rollouts", _curves(steps, _criteria(steps))),
        *((title, unit, _curves(steps, names)) for title, unit, names in _UPDATE),
        ("Time of a step", "seconds", _curves(steps, _stages(steps))),
    ]
    return [{"title": title, "unit": unit, "curves": curves} for title, unit, curves in drawn if curves]


def _curves(rows: Iterable[MetricsLine], names: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = list(rows)
    found = {
        label: [[row["step"], row[key]] for row in rows if row.get(key) is not None] for key, label in names.items()
    }
    return [{"label": label, "points": points} for label, points in found.items() if points]


def _validated(validations: Sequence[MetricsLine], sets: Sequence[str], metric: str) -> list[dict[str, Any]]:
    return _curves(validations, {f"val/{name}/{metric}": f"validation, {name}" for name in sets})


def _kinds(validations: Sequence[MetricsLine], name: str) -> list[dict[str, Any]]:
    kinds = kinds_of(validations, name)
    return _curves(validations, {f"val/{name}/accurate/{kind}": kind.replace("_", " ") for kind in kinds})


def _criteria(steps: Sequence[MetricsLine]) -> dict[str, str]:
    """Return the metrics of the judge's criteria by label; those of a panel's members are in metrics.jsonl only."""
    found = {key for step in steps for key in step if key.startswith("judge/") and "." not in key}
    return {name: name.removeprefix("judge/") for name in sorted(found - _NOT_CRITERIA)}


def _stages(steps: Sequence[MetricsLine]) -> dict[str, str]:
    """Return the stages of a step: those that verl reports, else rollouts and update."""
    found = sorted({key for step in steps for key in step if key.startswith("timing_s/")} - {"timing_s/step"})
    return {key: key.removeprefix("timing_s/") for key in found} or _STAGES


def validation_sets(validations: Sequence[MetricsLine]) -> list[str]:
    """Return the names of the sets that were validated on, in the order of the first line."""
    keys = dict.fromkeys(key for row in validations for key in row)
    return [key.split("/")[1] for key in keys if key.startswith("val/") and key.endswith("/questions")]


def kinds_of(validations: Sequence[MetricsLine], name: str) -> list[str]:
    """Return the kinds of question in the set `name`, in alphabetical order."""
    prefix = f"val/{name}/{_KINDS}"
    return sorted({key.removeprefix(prefix) for row in validations for key in row if key.startswith(prefix)})


def validation_table(validations: Sequence[MetricsLine]) -> TextTable:
    """Lay out the first and the last of `validations` for each set; a single validation gives one column a set.

    The second section has the shares of accurate answers by kind of question. A figure that was not measured is "–".
    """
    sets = validation_sets(validations)
    ends = [validations[0], validations[-1]][: len(validations)] if validations else []
    shown = [(name, row) for name in sets for row in ends]

    def texts(key: str) -> list[str]:
        return [_text(row.get(f"val/{name}/{key}")) for name, row in shown]

    measured = {key for name in sets for row in ends for key in _FIGURES if f"val/{name}/{key}" in row}
    kinds = sorted({kind for name in sets for kind in kinds_of(validations, name)})
    return TextTable(
        title="Validation, greedy",
        columns=[f"{name}, step {row['step']}" for name, row in shown],
        sections=[
            [(label, texts(key)) for key, label in _FIGURES.items() if key in measured],
            [(f"accurate: {kind.replace('_', ' ')}", texts(_KINDS + kind)) for kind in kinds],
        ],
        note="" if shown else "No validation was finished.",
    )


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
