"""Say how far generated questions vary: python benchmarks/question_variety.py train.parquet --db medical.db

The first table has, by type of question, how many there are, how many name their row in a way that `name = '…'` does
not find, how many have gold SQL of more than one statement, and how many first find nothing. The second has, by
column, how many ways to ask for it the description has for the training split, and how many of them occur in the file.
It needs no model.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from sql_agent.database import Database, open_database
from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Lang, QueryLimits, Question
from sql_agent.tasks.described.words import half
from sql_agent.tasks.medical.medical_task import description
from sql_agent.tasks.medical.tables import SCHEMA

# The name in the first condition of a statement, and the table that it is looked for in.
_NAMED = re.compile(r"FROM (?P<table>\w+)(?: \w+)? .*?(?P<column>\w+_name) (?:=|LIKE|IN) \(?'(?P<name>(?:[^']|'')+)'")


def main() -> None:
    """Read the file and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--db", type=Path, required=True)
    arguments = parser.parse_args()
    questions = load_questions(arguments.file)
    console = Console(width=100)
    with open_database(arguments.db, SCHEMA, QueryLimits(deadline_s=30.0)) as database:
        console.print(by_type(questions, database))
    console.print(by_column(questions))


def by_type(questions: Sequence[Question], database: Database) -> Table:
    """Return the shares of each type of question and of all."""
    table = Table("type", "questions", "name that = misses", "several queries", "first finds nothing")
    missed = {question.id: _finds_nothing(question.statements[0], database) for question in questions}
    other = {question.id: _is_named_otherwise(question, database) for question in questions}
    types = sorted({question.task_type or "" for question in questions})
    rows = [(name, [question for question in questions if question.task_type == name]) for name in types]
    answerable = [question for question in questions if question.task_type != "unanswerable"]
    for name, group in (*rows, ("all answerable", answerable)):
        shares = (
            sum(other[question.id] for question in group),
            sum(len(question.statements) > 1 for question in group),
            sum(missed[question.id] for question in group),
        )
        table.add_row(name, str(len(group)), *(f"{share / len(group):.0%}" for share in shares))
    return table


def by_column(questions: Sequence[Question]) -> Table:
    """Return how many wordings each column has and how many of them occur."""
    lang: Lang = questions[0].lang or "zh"
    texts = "\n".join(question.question for question in questions).casefold()
    table = Table("column", "ways to ask for it", "of them in the file")
    for name, described in description(lang).tables.items():
        for column, of in described.columns.items():
            wordings = half(of.ask, held_out=False)
            table.add_row(f"{name}.{column}", str(len(wordings)), str(_occurring(wordings, texts)))
    return table


def _occurring(wordings: Iterable[str], texts: str) -> int:
    """How many of `wordings` have their longest fixed part in `texts`."""
    parts = [max(re.split(r"\{\w+\}", wording), key=len) for wording in wordings]
    return sum(part.strip(" ？?。.").casefold() in texts for part in parts)


def _finds_nothing(statement: str, database: Database) -> bool:
    return not any(cell for row in database.query(statement).records for cell in row)


def _is_named_otherwise(question: Question, database: Database) -> bool:
    """Whether the name in the first statement is no name in its table."""
    match = _NAMED.search(question.statements[0])
    if match is None:
        return False
    name = match["name"].strip("%")
    return not database.query(f"SELECT 1 FROM {match['table']} WHERE {match['column']} = '{name}'").records


if __name__ == "__main__":
    main()
