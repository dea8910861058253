"""Runs every gold SQL as the agent would and checks that it returns the answer and its evidence."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sql_agent.data.medical.phrasing import wording
from sql_agent.data.medical.questions.catalog import Catalog
from sql_agent.data.medical.sample_facts import SEPARATORS
from sql_agent.data.medical.schema import NAME_COLUMNS, SCHEMA
from sql_agent.database import SqliteDatabase, open_database
from sql_agent.errors import DataError
from sql_agent.schemas import Cell, QueryLimits, Question

# A busy machine is no fault of a question.
PATIENT = QueryLimits(deadline_s=30.0)

Rows = tuple[tuple[Cell, ...], ...]


def verify(questions: Iterable[Question], catalog: Catalog, path: Path, limits: QueryLimits | None = None) -> None:
    """Check `questions` against the database at `path`, which `catalog` was read from.

    Raises DataError that names the first question whose SQL fails, is cut by `limits`, or does not return its answer
    and evidence.
    """
    fields = {(row.table, row.row_id): row.values for rows in catalog.rows.values() for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        copy = _indexed_copy(path, Path(folder) / "copy.db")
        with open_database(copy, SCHEMA, limits or PATIENT) as database:
            for question in questions:
                for item in question.evidence:
                    if item.quote not in (fields.get((item.table, item.row_id), {}).get(item.field) or ""):
                        raise _wrong(
                            question, f"{item.quote!r} is not in {item.table}.{item.field} of row {item.row_id}"
                        )
                if problem := _problem(question, _run(question, database)):
                    raise _wrong(question, problem)


def _indexed_copy(path: Path, copy: Path) -> Path:
    """The same content with an index on the names: thousands of look-ups take seconds, not a minute."""
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    try:
        source.backup(target)
        for table, column in NAME_COLUMNS.items():
            target.execute(f"CREATE INDEX verify_{table} ON {table} ({column})")
        target.commit()
    finally:
        source.close()
        target.close()
    return copy


def _run(question: Question, database: SqliteDatabase) -> Rows:
    if question.sql is None:
        raise _wrong(question, "there is no SQL")
    answer = database.query(question.sql)
    if answer.error:
        raise _wrong(question, f"the SQL failed: {answer.error.message}")
    if answer.truncated:
        raise _wrong(
            question, f"the rows are cut at {database.limits.max_rows} rows or {database.limits.max_chars} chars"
        )
    return answer.records


def _problem(question: Question, rows: Rows) -> str | None:
    """What the rows lack, or None."""
    cells = [str(cell) for row in rows for cell in row if cell is not None]
    facts = question.answer.split(SEPARATORS[question.lang])
    if question.task_type == "unanswerable":
        return f"rows say {cells[0]!r}" if any(cells) else None
    if not question.evidence:
        return "there is no evidence"
    if question.task_type == "aggregate":
        counted = [str(len(question.evidence))]
        return None if cells == counted == facts else f"SQL counts {cells}, evidence {counted}, the answer {facts}"
    if question.task_type in {"keyword_search", "disease_to_drugs"}:
        return None if sorted(cells) == sorted(facts) else f"SQL returns {cells}, the answer is {facts}"
    wanted = [item.quote for item in question.evidence] + [part for fact in facts for part in _parts(question, fact)]
    return next((f"{text!r} is not in the rows" for text in wanted if not any(text in cell for cell in cells)), None)


def _parts(question: Question, fact: str) -> list[str]:
    """A fact of a comparison is a name and its items; every other fact is one part."""
    if question.task_type != "comparison":
        return [fact]
    marks = wording(question.lang).marks
    name, _, items = fact.partition(marks.name)
    return [name, *items.split(marks.item)]


def _wrong(question: Question, what: str) -> DataError:
    return DataError(
        f"question {question.id} ({question.question!r}): {what}", hint="the question generator has a fault: report it"
    )
