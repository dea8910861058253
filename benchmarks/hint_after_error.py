"""Say how often the statement that a hint suggests after an unknown column is right.

    hint_after_error.py RUN --data-dir DIR

RUN is the folder of a run of the task spider, and DIR has its databases. The statements of its validations that named
an unknown column are run again. The first statement that the hint suggests is right if it finds what the gold statement
finds. It needs no model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sql_agent.database import Database, RequiredSchema, open_database
from sql_agent.database.hints import suggested_statements
from sql_agent.reward.execution_match import is_ordered, results_match
from sql_agent.schemas import Question, RolloutRecord

SCHEMA = RequiredSchema(None, hint="give the folder of the run's databases")


def main() -> None:
    """Run the statements again, and print a line for each validation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    failed: dict[str, list[tuple[int, Question, str]]] = defaultdict(list)
    asked: Counter[int] = Counter()
    for line in (arguments.run / "rollouts.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        if row["mode"] == "val" and row["record"]:
            record = RolloutRecord.model_validate(row["record"])
            asked[row["step"]] += 1
            first = record.calls[0] if record.calls else None
            if first is not None and first.answer.error is not None and first.answer.error.kind == "unknown_column":
                failed[record.question.database or ""].append((row["step"], record.question, first.sql))
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for name, statements in failed.items():
        path = next(
            path for folder in ("database", ".") for path in (arguments.data_dir / folder).glob(f"{name}/*.sqlite")
        )
        with open_database(path, SCHEMA) as database:
            for step, question, sql in statements:
                counts[step][verdict(database, question, sql)] += 1
    for step, found in sorted(counts.items()):
        suggested = found["right"] + found["wrong"]
        print(f"step {step}: {asked[step]} first statements, {found.total()} with an unknown column", end="; ")
        print(f"a statement is suggested for {suggested}, the right one for {found['right']}")


def verdict(database: Database, question: Question, sql: str) -> str:
    """Return whether the first suggested statement is `right` or `wrong`, or `none` without one."""
    error = database.query(sql).error
    suggested = suggested_statements(error.hint if error else None)
    if not suggested:
        return "none"
    gold = question.statements[-1]
    found, wanted = database.query(suggested[0]), database.query(gold)
    return "right" if results_match(wanted.records, found.records, ordered=is_ordered(gold)) else "wrong"


if __name__ == "__main__":
    main()
