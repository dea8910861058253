"""Query a database for a question, to evaluate judges on answers to the question."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.database import Database
from sql_agent.database.provenance import evidence_read
from sql_agent.errors import DataError
from sql_agent.judge_eval.generation import Example, Reading
from sql_agent.schemas import QueryCall, Question

_COLUMNS = re.compile(r"\A\s*SELECT\b.*?\bFROM\b", re.IGNORECASE | re.DOTALL)
_TABLE = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)", re.IGNORECASE)


def read_example(question: Question, database: Database) -> Example:
    """Run the gold SQL of `question`, the same statements with all columns, and a SELECT of each whole table.

    Raises DataError when the question has no SQL, or its SQL fails on `database`.
    """
    if not question.statements:
        raise DataError(
            f"question {question.id!r} has no SQL, so an answer can have read no rows",
            hint="give each question its gold SQL, or evaluate on labelled answers with --labels FILE",
        )
    gold = _read(question, question.statements, database)
    failure = next((call.answer.error for call in gold.calls if call.answer.error), None)
    if failure is not None:
        raise DataError(
            f"the SQL of question {question.id!r} fails on {database.source}: {failure.message}",
            hint="is --db the database of these questions? if it is slow, raise database.deadline_s",
        )
    tables = dict.fromkeys(table for sql in question.statements for table in _TABLE.findall(sql))
    every_column = [_COLUMNS.sub("SELECT * FROM", sql, count=1) for sql in question.statements]
    rows = _read(question, every_column, database)
    return Example(question, gold, rows, _read(question, [f"SELECT * FROM {table}" for table in tables], database))


def _read(question: Question, statements: Sequence[str], database: Database) -> Reading:
    calls = tuple(QueryCall(sql=sql, answer=database.query(sql), seconds=0.0) for sql in statements)
    return Reading(calls, evidence_read(database, calls, question.evidence))
