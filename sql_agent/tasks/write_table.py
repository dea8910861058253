"""Write the records of a source into one new table of a SQLite file, which `sql-agent init` can describe."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sql_agent.database.schema import fold, quoted
from sql_agent.errors import DataError
from sql_agent.tasks.cells import are_numbers, texts_of, unreadable
from sql_agent.tasks.read_records import Records, Rejected, by_reason, write_rejected

Row = Mapping[str, str]


@dataclass(frozen=True)
class ImportedTable:
    """The result of an import.

    rows      number of imported rows
    filled    number of filled cells by column
    types     SQL type by column
    empty     fields that no record fills
    repeated  number of rows that are equal to another row
    rejected  records that were not imported
    """

    rows: int
    filled: Mapping[str, int]
    types: Mapping[str, str]
    empty: Sequence[str]
    repeated: int
    rejected: Sequence[Rejected]


def import_table(records: Records, table: str, database: Path, rejected_file: Path) -> ImportedTable:
    """Write `records` into the new `table` of the file `database`, with a column for each field that a record fills.

    A column with only numbers is numeric, any other column is text. Rejected records are written to the JSON Lines
    file `rejected_file`. Raises DataError when the table exists, two fields differ only in case, or
    no record can be imported.
    """
    rows, names, rejected = _rows(records)
    if not rows:
        reason = next(iter(by_reason(rejected)), "the source is empty")
        raise DataError(f"no row could be imported: {reason}", hint="check the source")
    cells = {name: [row[name] for row in rows if name in row] for name in names}
    types = {name: _type(texts) for name, texts in cells.items() if texts}
    folded = {fold(name): name for name in types}
    if same := next((name for name in types if folded[fold(name)] != name), None):
        raise DataError(
            f"the fields {same} and {folded[fold(same)]} differ only in case, which SQLite ignores in names of columns",
            hint="rename one of them in the source",
        )
    try:
        with _new_table(database, table, types) as connection:
            # SQLite stores the text "12" in a numeric column as the number 12.
            statement = f"INSERT INTO {quoted(table)} VALUES ({', '.join('?' * len(types))})"
            connection.executemany(statement, ([row.get(name) for name in types] for row in rows))
            write_rejected(rejected, rejected_file)
    except (OSError, sqlite3.Error) as error:
        hint = "check --db, --table, --rejected and the permission to write there"
        raise DataError(f"cannot write {table} into {database}: {error}", hint=hint) from error
    repeated = len(rows) - len({tuple(sorted(row.items())) for row in rows})
    filled = {name: len(cells[name]) for name in types}
    return ImportedTable(len(rows), filled, types, [name for name in names if name not in types], repeated, rejected)


def _rows(records: Records) -> tuple[list[Row], list[str], list[Rejected]]:
    """Return the rows of `records` without their empty cells, the names of the fields, and the rejected records."""
    rows: list[Row] = []
    names: dict[str, None] = {}
    rejected: list[Rejected] = []
    for record in records:
        if isinstance(record, Rejected):
            rejected.append(record)
            continue
        names.update(dict.fromkeys(record.fields))
        try:
            row = {name: text for name, cell in record.fields.items() if (text := "; ".join(texts_of(cell)))}
        except TypeError as error:
            rejected.append(Rejected(record.place, "a cell is not a text", str(error)))
            continue
        if bad := [name for name, text in row.items() if unreadable(text)]:
            rejected.append(Rejected(record.place, f"{bad[0]} contains bytes that are not UTF-8 text"))
        elif row:
            rows.append(row)
        else:
            rejected.append(Rejected(record.place, "all cells are empty"))
    return rows, list(names), rejected


def _type(texts: Sequence[str]) -> str:
    if not are_numbers(texts):
        return "TEXT"
    return "REAL" if any("." in text for text in texts) else "INTEGER"


@contextmanager
def _new_table(database: Path, table: str, types: Mapping[str, str]) -> Iterator[sqlite3.Connection]:
    """Yield a connection in a transaction that has created `table`; commit unless an error is raised."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", (table,)).fetchone():
            raise DataError(
                f"{database} has a table {table} already, so nothing was imported",
                hint="give another --table or --db, or drop the table first",
            )
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
        connection.execute(f"CREATE TABLE {quoted(table)} ({columns})")
        yield connection
        connection.execute("COMMIT")
