"""Write the report of a run: one HTML page that works offline, from the run's files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from sql_agent.data.task import load_task
from sql_agent.errors import DataError
from sql_agent.schemas import Drop
from sql_agent.system.files import atomic_write
from sql_agent.tracking.validation_table import kinds_of, validation_sets, validation_table

_SHOWN = 12  # rollouts shown in full; rollouts.jsonl has them all
_HEIGHT = 320

Row = dict[str, Any]
# Names in the legend, and the colour that a name has in every figure (Okabe and Ito's set, which people with colour
# blindness can distinguish).
_FUNNEL = {
    "rollouts/enqueued": ("enqueued", "#999999"),
    "rollouts/finished": ("finished", "#56B4E9"),
    "rollouts/with_triplets": ("with triplets", "#0072B2"),
    "rollouts/kept": ("kept", "#009E73"),
}
_REWARD = {
    "reward/mean": ("training mean", "#0072B2"),
    "reward/judge": ("judge part", "#E69F00"),
    "reward/rule": ("rule part", "#009E73"),
}
_AGENT = {
    "agent/turns": ("turns", "#0072B2"),
    "agent/tool_calls": ("queries", "#E69F00"),
    "agent/sql_ok": ("share with a successful query", "#009E73"),
    "agent/empty_results": ("share of queries that found no row", "#D55E00"),
    "agent/recovered": ("share that got rows after none", "#CC79A7"),
}
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999", "#000000")
# Counts and costs of the judge, which are not criteria.
_NOT_CRITERIA = {
    f"judge/{name}"
    for name in ("failed", "requests", "prompt_tokens", "completion_tokens", "cache_hits", "cost_usd", "raw")
}
_GROUPS = {"groups/informative": ("groups whose rewards differ", "#0072B2")}
_VALIDATION = ("#D55E00", "#CC79A7")  # by set of questions
_TIMING = {"timing/rollout_s": ("rollouts", "#56B4E9"), "timing/update_s": ("update", "#E69F00")}


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into `run_dir` and return its path.

    An interrupted run may lack files, or have a last line that is cut off: the page says so. Raises DataError when the
    folder holds no run at all, and ConfigError when the run's task cannot be loaded.
    """
    path = run_dir / "config.json"
    if not path.exists():
        raise DataError(f"{run_dir} holds no run", hint="name a folder under runs/, such as runs/quickstart")
    config = json.loads(path.read_text(encoding="utf-8"))
    if "task" not in config:
        raise DataError(f"{path} names no task", hint="draw the page with the version that wrote this run")
    steps, validations, rollouts = (_lines(run_dir / f"{n}.jsonl") for n in ("metrics", "validation", "rollouts"))
    template = Environment(loader=PackageLoader("sql_agent.tracking"), autoescape=True).get_template("report.html.j2")
    page = template.render(
        name=run_dir.resolve().name,
        disclaimer=load_task(config["task"]).disclaimer,
        config=json.dumps(config, ensure_ascii=False, indent=2),
        judge=config.get("judge", {}).get("name", "?"),
        steps=steps,
        validation=validation_table(validations),
        figures=_figures(steps, validations),
        plotly=get_plotlyjs() if steps else "",
        dropped=_dropped(rollouts),
        rollouts=_examples([r for r in rollouts if r.get("record")]),
        total=len(rollouts),
    )
    target = run_dir / "report.html"
    with atomic_write(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return target


def _lines(path: Path) -> list[Row]:
    """Read the objects of a JSONL file, without a last line that was cut off when the process was killed."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1] if line]


def _figures(steps: Sequence[Row], validations: Sequence[Row]) -> list[tuple[str, str]]:
    """Draw the figures and return the title and the HTML of each; none before the first step."""
    if not steps:
        return []
    reward = _curves(steps, _REWARD, "reward (0–1.1)")
    sets = validation_sets(validations)
    for name, colour in zip(sets, _VALIDATION, strict=False):
        reward.add_scatter(
            x=[v["step"] for v in validations],
            y=[v.get(f"val/{name}/reward/mean") for v in validations],
            name=f"{name} questions, greedy",
            mode="lines+markers",
            line={"color": colour, "dash": "dot"},
            marker={"size": 10, "symbol": "diamond"},
        )
    drawn = {
        "Reward": reward,
        **{
            f"Accurate answers, {name} questions": _curves(
                validations, _kinds(validations, name), "share of the questions"
            )
            for name in sets
        },
        "What GRPO can compare": _curves(steps, _GROUPS, "share of the groups"),
        "Rollouts per step": _curves(steps, _FUNNEL, "rollouts"),
        "What the agent does": _curves(steps, _AGENT, "per rollout"),
        "What the judge sees": _curves(steps, _criteria(steps), "mean over the rollouts"),
        "Time per step": _stacked(steps, _TIMING, "seconds"),
    }
    return [
        (
            title,
            to_html(
                figure.update_xaxes(dtick=max(1, len(steps) // 10)),
                full_html=False,
                include_plotlyjs=False,
                default_width="100%",
                config={"displayModeBar": False, "responsive": True},
            ),
        )
        for title, figure in drawn.items()
    ]


def _kinds(validations: Sequence[Row], name: str) -> dict[str, tuple[str, str]]:
    *colours, last = _COLOURS
    labels = {f"val/{name}/accurate/{kind}": kind.replace("_", " ") for kind in kinds_of(validations, name)}
    return _coloured(labels, colours) | {f"val/{name}/accurate": ("all", last)}


def _criteria(steps: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return the legend of the judge's criteria; of a panel only its own, its members' are in metrics.jsonl."""
    found = {key for step in steps for key in step if key.startswith("judge/") and "." not in key}
    names = sorted(found - _NOT_CRITERIA)
    return _coloured({name: name.removeprefix("judge/") for name in names}, _COLOURS)


def _coloured(labels: dict[str, str], colours: Sequence[str]) -> dict[str, tuple[str, str]]:
    return {name: (label, colours[i % len(colours)]) for i, (name, label) in enumerate(labels.items())}


def _curves(steps: Sequence[Row], names: dict[str, tuple[str, str]], unit: str) -> go.Figure:
    figure = go.Figure(layout=_layout(unit))
    for key, (label, colour) in names.items():
        values = [s.get(key) for s in steps]
        figure.add_scatter(
            x=[s["step"] for s in steps], y=values, name=label, mode="lines+markers", line={"color": colour}
        )
    return figure


def _stacked(steps: Sequence[Row], names: dict[str, tuple[str, str]], unit: str) -> go.Figure:
    figure = go.Figure(layout={**_layout(unit), "barmode": "stack"})
    for key, (label, colour) in names.items():
        figure.add_bar(x=[s["step"] for s in steps], y=[s.get(key) for s in steps], name=label, marker_color=colour)
    return figure


def _layout(unit: str) -> dict[str, Any]:
    return {
        "height": _HEIGHT,
        "margin": {"l": 50, "r": 10, "t": 10, "b": 40},
        "template": "plotly_white",
        "xaxis": {"title": "step", "rangemode": "tozero", "tickformat": "d"},
        "yaxis": {"title": unit, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }


def _dropped(rollouts: Sequence[Row]) -> list[tuple[str, int]]:
    drops = (Drop.model_validate(rollout["dropped"]) for rollout in rollouts if rollout["dropped"])
    return Counter(map(str, drops)).most_common()


def _examples(rollouts: Sequence[Row]) -> list[Row]:
    """Choose rollouts of the last step, evenly spaced from the best to the worst."""
    if not rollouts:
        return []
    last = max(r["step"] for r in rollouts)
    ranked = sorted((r for r in rollouts if r["step"] == last), key=_total, reverse=True)
    step = max(1.0, (len(ranked) - 1) / (_SHOWN - 1))
    return [ranked[round(i * step)] for i in range(min(_SHOWN, len(ranked)))]


def _total(rollout: Row) -> float:
    reward = rollout["record"]["reward"]
    return reward["rule"] + reward["judge"] if reward else -1.0
