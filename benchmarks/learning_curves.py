"""Show what a run learned, by kind of question: python benchmarks/learning_curves.py runs/NAME [--png FILE]

It reads the validations and the steps of a run and prints a Markdown table for each set of questions: how many of each
kind are accurate at each validation, and queries a question, how many met an empty result, how many of those found
something afterwards, how many gave no answer. With --png it draws the same (needs matplotlib).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import RolloutRecord

UNANSWERABLE = "unanswerable"


@dataclass(frozen=True)
class Validated:
    """The graded answers of one set of questions at one step."""

    step: int
    records: tuple[RolloutRecord, ...]

    def of(self, kind: str) -> tuple[RolloutRecord, ...]:
        """Return the answers to questions of `kind`; "all" and "answerable" are kinds too."""
        if kind == "all":
            return self.records
        if kind == "answerable":
            return tuple(r for r in self.records if r.question.task_type != UNANSWERABLE)
        return tuple(r for r in self.records if r.question.task_type == kind)


def main() -> None:
    """Print the tables of a run, and draw them when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--png", type=Path)
    arguments = parser.parse_args()
    sets = read_validations(arguments.run / "rollouts.jsonl")
    for name, validations in sets.items():
        print(f"\n{name}: accurate, {len(validations[0].records)} questions\n")
        print(accuracy_table(validations))
        print(f"\n{name}: queries a question / empty results / found something after one / no answer\n")
        print(searching_table(validations))
    if arguments.png:
        draw(sets, read_steps(arguments.run / "metrics.jsonl"), arguments.png)


def read_validations(path: Path) -> dict[str, list[Validated]]:
    """Return the validations in rollouts.jsonl by the name of the set, in the order of their steps."""
    found: dict[str, dict[int, list[RolloutRecord]]] = defaultdict(lambda: defaultdict(list))
    for line in path.read_text(encoding="utf-8").splitlines():
        rollout = json.loads(line)
        if rollout["mode"] == "val" and rollout["dropped"] is None:
            record = RolloutRecord.model_validate(rollout["record"])
            found[rollout["val_set"]][rollout["step"]].append(record)
    return {
        name: [Validated(step, tuple(records)) for step, records in sorted(steps.items())]
        for name, steps in found.items()
    }


def read_steps(path: Path) -> list[dict[str, float]]:
    """Return the metrics of each step."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def kinds_of(validations: Sequence[Validated]) -> list[str]:
    """Return "all", "answerable" and the kinds of question of a set."""
    return ["all", "answerable", *sorted({r.question.task_type or "" for v in validations for r in v.records})]


def accuracy(records: Sequence[RolloutRecord]) -> float:
    """Return the share of accurate answers, 0.0–1.0."""
    return sum(map(is_accurate, records)) / len(records)


def accuracy_table(validations: Sequence[Validated]) -> str:
    """Return a table of the share of accurate answers, a row for each kind and a column for each step."""
    return _table(validations, lambda records: f"{accuracy(records):.1%}")


def searching_table(validations: Sequence[Validated]) -> str:
    """Return a table of how the questions were searched."""
    return _table(validations, _searching)


def _searching(records: Sequence[RolloutRecord]) -> str:
    queries = sum(len(r.calls) for r in records) / len(records)
    missed = [r for r in records if any(_is_empty(r, place) for place in range(len(r.calls)))]
    recovered = sum(not _is_empty(r, len(r.calls) - 1) for r in missed)
    silent = sum(not r.answer for r in records)
    return f"{queries:.2f} / {len(missed)} / {recovered} / {silent}"


def _is_empty(record: RolloutRecord, place: int) -> bool:
    answer = record.calls[place].answer
    return answer.status == "ok" and answer.count == 0


def _table(validations: Sequence[Validated], shown: Callable[[Sequence[RolloutRecord]], str]) -> str:
    head = ["kind", "questions", *(f"step {v.step}" for v in validations)]
    rows = [
        [kind, str(len(validations[0].of(kind))), *(shown(v.of(kind)) for v in validations)]
        for kind in kinds_of(validations)
    ]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(sets: dict[str, list[Validated]], steps: Sequence[dict[str, float]], png: Path) -> None:
    """Draw accuracy by set, by kind of question, and reward and groups that differ by step."""
    from matplotlib import pyplot  # noqa: PLC0415  needed for the picture alone

    figure, axes = pyplot.subplots(1, 2 + len(sets), figsize=(5.2 * (2 + len(sets)), 5), constrained_layout=True)
    colors = pyplot.get_cmap("tab20").colors
    for name, validations in sets.items():
        at = [v.step for v in validations]
        axes[0].plot(at, [accuracy(v.records) for v in validations], marker="o", label=name)
        axes[0].plot(at, [accuracy(v.of("answerable")) for v in validations], ls="--", label=f"{name}, answerable")
    axes[0].set_title("accurate, greedy, unseen questions")
    for panel, (name, validations) in zip(axes[1:], sets.items(), strict=False):
        for kind, color in zip(kinds_of(validations)[2:], colors, strict=False):
            at = [v.step for v in validations]
            panel.plot(at, [accuracy(v.of(kind)) for v in validations], marker=".", color=color, label=kind)
        panel.set_title(f"{name}: accurate, by kind of question")
    for metric in ("reward/mean", "groups/informative"):
        axes[-1].plot([step["step"] for step in steps], [step[metric] for step in steps], label=metric)
    axes[-1].set_title("training")
    for panel in axes:
        panel.set_ylim(0, 1.12)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)
    figure.savefig(png, dpi=90)


if __name__ == "__main__":
    main()
