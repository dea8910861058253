"""Make typical SQL mistakes of models, such as a misnamed column or the wrong table, for demonstrations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from sqlglot import exp

from sql_agent.database import Database
from sql_agent.database.conditions import only_table
from sql_agent.database.guard import parse
from sql_agent.database.schema import Schema, fold
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer

_T = TypeVar("_T")

_CLAUSE_END = re.compile(r"[,.;:?!，。；：？！、…\n]+")
_MOST_TOLD = 30  # maximum number of characters of a searched clause
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_JOIN = re.compile(  # an inner join on one equation
    rf"{_QUOTED}|(?<!left)(?<!right)(?<!outer)(?<!natural)(?<!cross)\s+(?:inner\s+)?join\s+(?:\w+\s+(?:as\s+)?(?!on\b))?"
    r"(?P<table>\w+)\s+on\s+[\w.]+\s*=\s*[\w.]+(?![\w.])(?!\s+(?:and|or)\b)",
    re.IGNORECASE,
)
_WORD = re.compile(rf"{_QUOTED}|[A-Za-z_]\w*")
_FROM = re.compile(rf"{_QUOTED}|\b(?:from|join)\s+(?P<table>[A-Za-z_]\w*)", re.IGNORECASE)
_READ = re.compile(  # an output column
    rf"{_QUOTED}|(?:\bselect\s+(?:distinct\s+)?|,\s*)(?P<column>(?!distinct\b)[A-Za-z_]\w*)(?=[\s\w,.]*\sfrom\b)",
    re.IGNORECASE,
)
# A column that is compared with a text. If only one table is read, the hint may suggest its column with the text.
_TESTED = re.compile(rf"{_QUOTED}|\b(?P<column>[A-Za-z_]\w*)(?=\s*(?:=|LIKE)\s*')", re.IGNORECASE)
_OF_TABLE = re.compile(rf"{_QUOTED}|\b(?P<table>[A-Za-z_]\w*)\.(?P<column>[A-Za-z_]\w*)")


def with_mistake(sql: str, database: Database, number: int) -> tuple[str, QueryAnswer] | None:
    """Return `sql` with a mistake, and the failed answer; None if no mistake makes it fail."""
    for broken in _mistakes(sql, database.schema, number):
        answer = database.query(broken)
        if answer.error is not None:
            return broken, answer
    return None


def parsed(sql: str, database: Database) -> exp.Query | None:
    """Return the syntax tree of a statement, or None if the parser cannot read it."""
    try:
        return parse(sql, database.dialect)
    except (QueryError, RecursionError):
        return None


def with_needless_condition(sql: str, asked: str, database: Database, number: int) -> tuple[str, QueryAnswer] | None:
    """Add a condition that no row meets to `sql`, which finds rows; return the new statement and its empty answer.

    The condition searches for a clause of the question `asked` without a text of `sql`, as models do with remarks.
    Returns None if there is no such clause, or if `sql` has no condition or reads several tables.
    """
    tree = parsed(sql, database)
    if tree is None or (table := only_table(tree, database.schema)) is None or tree.args.get("where") is None:
        return None
    literals = [literal.name.strip("%").casefold() for literal in tree.find_all(exp.Literal) if literal.is_string]
    clauses = list(filter(None, map(str.strip, _CLAUSE_END.split(asked))))
    remarks = [clause for clause in clauses if not any(text and text in clause.casefold() for text in literals)]
    used = {fold(column.name) for column in tree.find_all(exp.Column)} | {fold(database.schema.row_key(table) or "")}
    remark = _one_of([remark for remark in remarks if 1 < len(remark) <= _MOST_TOLD], number)
    column = _one_of([column for column in database.schema.columns[table] if fold(column) not in used], number)
    if len(clauses) < 2 or remark is None or column is None:
        return None
    like = exp.Like(this=exp.column(column), expression=exp.Literal.string(f"%{remark}%"))
    broken = tree.where(like).sql(database.dialect.grammar)
    answer = database.query(broken)
    return None if answer.error is not None or answer.records else (broken, answer)


def _mistakes(sql: str, schema: Schema, number: int) -> Iterator[str]:
    """Yield copies of `sql` with one mistake each; most copies fail in a database of `schema`.

    `number` selects the first kind of mistake, and its position in the statement.
    """
    first = number % len(_KINDS)
    for make in (*_KINDS[first:], *_KINDS[:first]):
        if (broken := make(sql, schema, number // len(_KINDS))) is not None:
            yield broken


def _invented_column(sql: str, schema: Schema, number: int) -> str | None:
    """Return `sql` with one column renamed to a name that the schema lacks."""
    chosen = _one_of([match for match in _WORD.finditer(sql) if fold(match[0]) in schema.column_names], number)
    if chosen is None:
        return None
    invented = f"{chosen[0]}_value" if "_" not in chosen[0] else chosen[0].replace("_", "", 1)
    return sql[: chosen.start()] + invented + sql[chosen.end() :]


def _wrong_table(sql: str, schema: Schema, number: int) -> str | None:
    """Return `sql` with one table replaced by another, which usually lacks the columns of the statement."""
    chosen = _one_of(_with_table(_FROM, sql), number)
    others = [table for table, _ in schema.tables if chosen and fold(table) != fold(chosen["table"])]
    if chosen is None or not others:
        return None
    return sql[: chosen.start("table")] + others[number % len(others)] + sql[chosen.end("table") :]


def _other_table(sql: str, _schema: Schema, number: int) -> str | None:
    """Return `sql` with the qualifier of one column replaced by another table of the statement."""
    found = _with_table(_OF_TABLE, sql)
    chosen = _one_of(found, number)
    others = sorted({match["table"] for match in found} - {chosen["table"]}) if chosen else []
    if chosen is None or not others:
        return None
    return sql[: chosen.start("table")] + others[number % len(others)] + sql[chosen.end("table") :]


def without_join(sql: str, _schema: Schema, number: int) -> str | None:
    """Return `sql` without the join of one table, and without the qualifiers of its columns."""
    chosen = _one_of(_with_table(_JOIN, sql), number)
    if chosen is None:
        return None
    qualifier = re.compile(rf"({_QUOTED})|\b{chosen['table']}\.", re.IGNORECASE)
    return qualifier.sub(lambda match: match[1] or "", sql[: chosen.start()] + sql[chosen.end() :])


def _no_table(sql: str, _schema: Schema, number: int) -> str | None:
    """Return `sql` without the qualifier of one column, which may then be ambiguous."""
    chosen = _one_of(_with_table(_OF_TABLE, sql), number)
    return sql[: chosen.start()] + sql[chosen.start("column") :] if chosen else None


def _of_other_table(column: re.Pattern[str], sql: str, schema: Schema, number: int) -> str | None:
    """Return `sql` with one match of the pattern `column` replaced by a column that no table of `sql` has."""
    chosen = _one_of([match for match in column.finditer(sql) if match["column"]], number)
    read = {fold(match["table"]) for match in _with_table(_FROM, sql)}
    known = {fold(column) for table, columns in schema.tables if fold(table) in read for column in columns}
    others = [column for _, columns in schema.tables for column in columns if fold(column) not in known]
    if chosen is None or not others:
        return None
    return sql[: chosen.start("column")] + others[number % len(others)] + sql[chosen.end("column") :]


def _stray_brace(sql: str, _schema: Schema, _number: int) -> str | None:
    """Return `sql` with a closing brace at the end, a typical mistake of models trained on JSON tool calls."""
    return f"{sql}}}"


_KINDS: Sequence[Callable[[str, Schema, int], str | None]] = (
    _wrong_table,
    partial(_of_other_table, _READ),
    _invented_column,
    _other_table,
    without_join,
    _no_table,
    partial(_of_other_table, _TESTED),
    _stray_brace,
)


def _with_table(pattern: re.Pattern[str], sql: str) -> list[re.Match[str]]:
    """Return those matches of `pattern` that have a table's name; quoted strings also match, but have none."""
    return [match for match in pattern.finditer(sql) if match["table"]]


def _one_of(found: Sequence[_T], number: int) -> _T | None:
    return found[number % len(found)] if found else None
