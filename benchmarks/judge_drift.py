"""Compare the judge of a run with `facts`, step by step: python benchmarks/judge_drift.py runs/NAME [--every 5]

A line for each few steps of training, and one for each validation: the mean score of the judge of the run and of
`facts`, their Spearman correlation over the rollouts, the shares of accurate and correct answers by `facts`. A falling
correlation with a rising score of the judge is the first sign that the policy exploits the judge.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.agreement import spearman
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.reward.judges.panel_cache_prefilter import PrefilteredJudge
from sql_agent.rollouts.metrics import ACCURATE
from sql_agent.schemas import RolloutRecord
from sql_agent.tasks.medical.medical_task import TASK


class Pair(NamedTuple):
    """A rollout's score by the run's judge and by `facts`, and whether a person would accept the answer."""

    judge: float
    facts: float
    correct: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--every", type=int, default=5, help="training steps in a line")
    args = parser.parse_args()
    facts = PrefilteredJudge(FactsJudge(TASK.words))
    parts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for line in map(json.loads, (args.run / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()):
        record = RolloutRecord.model_validate(line["record"])
        if record.reward is None:
            continue
        case = JudgeCase(
            question=record.question, answer=record.answer, calls=record.calls, evidence_read=record.evidence_read
        )
        try:
            verdict = asyncio.run(facts.grade(case))
        except JudgeError:
            continue
        first = (line["step"] - 1) // args.every * args.every + 1
        where = f"steps {first}–{first + args.every - 1}" if line["mode"] == "train" else f"step {line['step']}"
        pair = Pair(record.reward.judge, verdict.score, verdict.criteria.get("correct", 0.0))
        parts[line.get("val_set") or line["mode"], where].append(pair)
    print(f"{'set':10} {'when':12} {'n':>6} {'judge':>6} {'facts':>6} {'rho':>6} {'accurate':>9} {'correct':>8}")
    for (name, where), pairs in parts.items():
        scores = np.array([p.judge for p in pairs]), np.array([p.facts for p in pairs])
        accurate = fmean(p.facts >= ACCURATE for p in pairs)
        print(
            f"{name:10} {where:12} {len(pairs):6} {scores[0].mean():6.3f} {scores[1].mean():6.3f} "
            f"{spearman(*scores):6.2f} {accurate:9.1%} {fmean(p.correct for p in pairs):8.1%}"
        )


if __name__ == "__main__":
    main()
