"""Read the rows that answer a question whole, so that only the question's text says which of their columns is meant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from sql_agent.database import Database, Naming
from sql_agent.database.conditions import conditions, only_table, where_of
from sql_agent.database.guard import parse
from sql_agent.database.schema import fold
from sql_agent.schemas import QueryAnswer, QueryCall, Question

_NARROWER = ("group", "having", "limit", "offset", "distinct")


def gold_calls(question: Question, database: Database) -> tuple[QueryCall, ...]:
    """Run the gold SQL of a question."""
    return tuple(QueryCall(sql=sql, answer=database.query(sql), seconds=0.0) for sql in question.statements)


def whole_rows(
    calls: tuple[QueryCall, ...], database: Database, namings: Mapping[str, Naming], *, unanswerable: bool
) -> list[str]:
    """Return the rows of gold statements as JSON objects, each once, with all columns where they are of one table.

    Of a count the rows that are counted are shown. What a join or a GROUP BY returns stays as it is, and so does what
    has no room for whole rows in the limits of `database`. The statement of an `unanswerable` question finds nothing,
    so the row that it names is shown, if there is one.
    """
    lines = []
    for call in calls:
        whole = _whole_statement(call.sql, database, namings, unanswerable=unanswerable)
        answer = database.query(whole) if whole else call.answer
        lines += list(_lines(call.answer if answer.error or answer.truncated else answer))
    return list(dict.fromkeys(lines))


def _whole_statement(sql: str, database: Database, namings: Mapping[str, Naming], *, unanswerable: bool) -> str | None:
    tree = parse(sql, database.dialect)
    table = only_table(tree, database.schema)
    if table is None or any(tree.args.get(part) for part in _NARROWER):
        return None
    where = where_of(tree, database.dialect)
    if unanswerable:
        column = fold(namings[table].column)
        by_name = [
            c.sql
            for c in conditions(tree, database.schema, database.dialect)
            if any(t.column == column for t in c.texts)
        ]
        where = f"WHERE {' AND '.join(f'({condition})' for condition in by_name)}" if by_name else where
    return f"SELECT * FROM {table} {where}"


def _lines(answer: QueryAnswer) -> Iterator[str]:
    for record in answer.records:
        yield json.dumps(dict(zip(answer.columns, record, strict=True)), ensure_ascii=False)
