"""Choose the curves of a report from the metrics of each step and each validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sql_agent.runs.validation_table import kinds_of, validation_sets

Row = Mapping[str, Any]  # a line of metrics.jsonl or validation.jsonl

# Counts and costs of the judge, which are not criteria.
_NOT_CRITERIA = {
    f"judge/{name}"
    for name in ("failed", "requests", "prompt_tokens", "completion_tokens", "cache_hits", "cost_usd", "raw")
}
# Of each chart: its title, its unit, and the names of its curves by metric. A metric that a run lacks is left out.
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


def charts(steps: Sequence[Row], validations: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the charts of a run: of each the title, the unit and the curves, each with a label and its points.

    A point is a step and a value. Charts that have no point are left out.
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


def _curves(rows: Iterable[Row], names: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = list(rows)
    found = {
        label: [[row["step"], row[key]] for row in rows if row.get(key) is not None] for key, label in names.items()
    }
    return [{"label": label, "points": points} for label, points in found.items() if points]


def _validated(validations: Sequence[Row], sets: Sequence[str], metric: str) -> list[dict[str, Any]]:
    return _curves(validations, {f"val/{name}/{metric}": f"validation, {name}" for name in sets})


def _kinds(validations: Sequence[Row], name: str) -> list[dict[str, Any]]:
    kinds = kinds_of(validations, name)
    return _curves(validations, {f"val/{name}/accurate/{kind}": kind.replace("_", " ") for kind in kinds})


def _criteria(steps: Sequence[Row]) -> dict[str, str]:
    """Return the judge's criteria; of a panel only its own, its members' are in metrics.jsonl."""
    found = {key for step in steps for key in step if key.startswith("judge/") and "." not in key}
    return {name: name.removeprefix("judge/") for name in sorted(found - _NOT_CRITERIA)}


def _stages(steps: Sequence[Row]) -> dict[str, str]:
    """Return the stages of a step: verl's own where it reports them, otherwise rollouts and update."""
    found = sorted({key for step in steps for key in step if key.startswith("timing_s/")} - {"timing_s/step"})
    return {key: key.removeprefix("timing_s/") for key in found} or _STAGES
