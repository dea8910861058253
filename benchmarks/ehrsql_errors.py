"""Split an evaluation on EHRSQL by whether train has a gold statement of the same form, and print wrong answers.

    python benchmarks/ehrsql_errors.py runs/eval-… --train DIR/train.json --show 40

Two statements have the same form if they are equal once strings and numbers are masked. The scores are those of
`sql-agent evaluate`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

from sql_agent.evaluation.folder import EvaluationFolder
from sql_agent.evaluation.measures import measure_set
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.tasks.ehrsql.ehrsql_task import TASK

_LITERAL = re.compile(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b")
_SCORES = ("rs_0", "rs_5", "rs_10", "accurate", "agent/refused")


def masked(sql: str) -> str:
    """Return `sql` with strings and numbers replaced, in lower case and with single spaces."""
    return " ".join(_LITERAL.sub("?", sql.casefold()).split())


def group(question: Question, forms: set[str]) -> str:
    """Return the name of the part that a question belongs to."""
    if question.sql is None:
        return str(question.task_type)
    return "seen form" if masked(question.sql) in forms else "unseen form"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N wrong answers, drawn at random")
    arguments = parser.parse_args()
    forms = {masked(question.sql) for question in TASK.read_questions(arguments.train, None) if question.sql}
    parts: dict[str, list[RolloutRecord]] = {"all": []}
    for record in EvaluationFolder.open(arguments.folder).records().values():
        if record.reward is not None:
            parts["all"].append(record)
            parts.setdefault(group(record.question, forms), []).append(record)
    for name, records in sorted(parts.items()):
        figures = measure_set(records, TASK.words, reliability=True).all.figures
        shown = {key: round(figures[key].value, 3) for key in _SCORES if key in figures}
        print(json.dumps({"part": name, "answers": len(records)} | shown))
    wrong = [record for record in parts["all"] if not is_accurate(record)]
    for record in random.Random(0).sample(wrong, min(arguments.show, len(wrong))):
        question = record.question
        reason = record.reward.reason if record.reward else ""
        print(f"\n{group(question, forms)}: {question.question}\n  gold   {question.answer}\n  answer {record.answer}")
        print(f"  {reason}")


if __name__ == "__main__":
    main()
