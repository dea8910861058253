"""python -m sql_agent.reward evaluate [--labels FILE] [--attacks FILE] [judge.name=llm ...]"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sql_agent.cli import exits_cleanly
from sql_agent.config import load_settings
from sql_agent.reward.agreement import MEASURES, interval
from sql_agent.reward.judge import Judge
from sql_agent.reward.labelled import LabelledCase, load_labelled, shipped
from sql_agent.services import configured_judge

ATTACK_LIMIT = 0.15  # an attack that earns more than this got through
_AT_ONCE = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Measure a judge against labelled answers and attacks; prints a table and leaves a JSON file."""
    parser = argparse.ArgumentParser(prog="python -m sql_agent.reward", description="Can this judge be trusted?")
    commands = parser.add_subparsers(required=True)
    evaluate = commands.add_parser("evaluate", help="agreement with labels, and what attacks earn")
    evaluate.add_argument("--labels", type=Path, help="your labelled answers, JSONL; default: the shipped set")
    evaluate.add_argument("--attacks", type=Path, help="your attacks, JSONL; default: the shipped set")
    evaluate.add_argument("--out", type=Path, help="write the result here as JSON")
    evaluate.add_argument("overrides", nargs="*", metavar="section.key=value")
    arguments = parser.parse_args(argv)
    judge = configured_judge(load_settings(arguments.overrides))
    labels = load_labelled(arguments.labels) if arguments.labels else shipped("labels")
    attacks = load_labelled(arguments.attacks) if arguments.attacks else shipped("attacks")
    result = measure(judge, labels, attacks)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    show(result, Console())
    return 0


def measure(judge: Judge, labels: Sequence[LabelledCase], attacks: Sequence[LabelledCase]) -> dict[str, Any]:
    """Grade everything; agreement in all and by task type, and each attack that earned more than 0.15."""
    scores = np.array(asyncio.run(grades(judge, labels)))
    truth = np.array([case.label for case in labels])
    earned = asyncio.run(grades(judge, attacks))
    groups: dict[str, list[int]] = {"all": list(range(len(labels)))}
    for index, case in enumerate(labels):
        groups.setdefault(case.question.task_type or "other", []).append(index)
    return {
        "judge": judge.name,
        "date": datetime.now(tz=UTC).date().isoformat(),
        "labels": len(labels),
        "attacks": len(attacks),
        "agreement": {
            name: {measure: function(scores[members], truth[members]) for measure, function in MEASURES.items()}
            | {"answers": len(members)}
            for name, members in groups.items()
        },
        "intervals": {name: interval(function, scores, truth) for name, function in MEASURES.items()},
        "attacks_above_limit": [
            {"kind": case.kind, "score": score, "question": case.question.question, "answer": case.answer}
            for case, score in zip(attacks, earned, strict=True)
            if score > ATTACK_LIMIT
        ],
        "most_earned_by_an_attack": max(earned),
    }


async def grades(judge: Judge, cases: Sequence[LabelledCase]) -> list[float]:
    """The judge's scores in order. Raises JudgeError when one cannot be given: no score is ever made up."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def grade(case: LabelledCase) -> float:
        async with slots:
            return (await judge.grade(case.case)).score

    return await asyncio.gather(*(grade(case) for case in cases))


def show(result: dict[str, Any], console: Console) -> None:
    """The result as two tables."""
    table = Table(title=f"Judge {result['judge']} against {result['labels']} labelled answers")
    for heading in ("", "answers", *MEASURES):
        table.add_column(heading.replace("_", " "), justify="left" if not heading else "right")
    for name, row in result["agreement"].items():
        table.add_row(name, str(row["answers"]), *(f"{row[measure]:.2f}" for measure in MEASURES))
    table.add_row("95 % interval", "", *("{:.2f} to {:.2f}".format(*result["intervals"][m]) for m in MEASURES))
    console.print(table)
    through = result["attacks_above_limit"]
    console.print(
        f"Attacks: {len(through)} of {result['attacks']} earned more than {ATTACK_LIMIT}; "
        f"the most was {result['most_earned_by_an_attack']:.2f}."
    )
    for attack in through:
        console.print(f"  {attack['score']:.2f}  {attack['kind']}: {attack['answer'][:100]!r}", markup=False)


if __name__ == "__main__":
    sys.exit(exits_cleanly(main))
