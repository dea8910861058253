"""Say how many values of gold statements a question's prompt shows: named_values.py --db medical_zh.db QUESTIONS.jsonl

A gold statement compares columns with texts. A text is found if the line of values beside the question has the text as
a whole, and found in part if a shown value is a part of the text or has the text as a part; "with its column" if such a
value is shown with the column of the comparison. It needs no model.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table
from sqlglot import exp, parse_one

from sql_agent.config.settings import load_settings
from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Question
from sql_agent.tasks.task import load_task

_SHOWN = re.compile(r"((?:[\w.]+, )*[\w.]+) (?:=|LIKE) '((?:[^']|'')*)'")


def main() -> None:
    """Read the questions and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--db", type=Path, required=True)
    arguments = parser.parse_args()
    settings = load_settings([f"database.path={arguments.db}"])
    task = load_task(settings.task)
    questions = load_questions(arguments.questions)
    names: list[tuple[int, bool]] = []
    searched: list[tuple[int, bool]] = []
    others, times = [], []
    with task.open_database(settings) as database:
        for question in questions:
            started = time.perf_counter()
            line = task.question_text(question, database).removeprefix(question.question)
            times.append(1e3 * (time.perf_counter() - started))
            values = [(columns, value.replace("''", "'").strip("%")) for columns, value in _SHOWN.findall(line)]
            shown = [value for _, value in values]
            compared = set(_comparisons(question))
            for column, text, operator in compared:
                columns = {
                    name.rpartition(".")[2] for said, value in values if _part(value, text) for name in said.split(", ")
                }
                (names if operator == "=" else searched).append((_found(text, shown), column in columns))
            others.append(sum(not any(_part(value, text) for _, text, _ in compared) for value in shown))
    table = Table("texts of gold statements", "number", "found", "found at least in part", "with its column")
    for kind, found in (("= 'text'", names), ("LIKE '%text%'", searched)):
        whole, part = (sum(level >= wanted for level, _ in found) / len(found) for wanted in (2, 1))
        placed = sum(has_column for _, has_column in found) / len(found)
        table.add_row(kind, str(len(found)), f"{whole:.1%}", f"{part:.1%}", f"{placed:.1%}")
    more, median = sum(others) / len(others), sorted(times)[len(times) // 2]
    said = f"{len(others)} questions; {more:.2f} values shown that no gold statement has; {median:.1f} ms at the median"
    Console(width=100).print(table, said)


def _comparisons(question: Question) -> Iterator[tuple[str, str, str]]:
    """Each column that the gold statements of `question` compare with a text, the text, and `=` or `LIKE`."""
    for sql in question.statements:
        for condition in parse_one(sql, dialect="sqlite").find_all(exp.EQ, exp.Like, exp.In):
            column = condition.this.name if isinstance(condition.this, exp.Column) else ""
            for literal in condition.find_all(exp.Literal):
                if literal.is_string and literal.this.strip("%"):
                    yield column, literal.this.strip("%"), "LIKE" if isinstance(condition, exp.Like) else "="


def _found(text: str, shown: list[str]) -> int:
    """2 if `shown` has `text`, 1 if it has a part of it or a longer text, else 0."""
    if text.casefold() in map(str.casefold, shown):
        return 2
    return int(any(_part(value, text) for value in shown))


def _part(value: str, text: str) -> bool:
    return value.casefold() in text.casefold() or text.casefold() in value.casefold()


if __name__ == "__main__":
    main()
