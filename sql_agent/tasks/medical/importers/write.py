"""Write the rows of a source into the two tables of a database, and count what was written and what was not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from sql_agent.database import Source
from sql_agent.errors import DataError
from sql_agent.system.files import atomic_write
from sql_agent.tasks.medical.importers.mapping import TableMapping
from sql_agent.tasks.medical.importers.records import Records, Rejected, Row
from sql_agent.tasks.medical.importers.targets import Insert, open_target

_EXAMPLES = 3


@dataclass
class Imported:
    """Counts the rows by table, their filled cells by table and column, and what was rejected by reason.

    `examples` has some places of each reason.
    """

    rows: Counter[str] = field(default_factory=Counter)
    filled: Counter[tuple[str, str]] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


def import_records(records: Records, mapping: TableMapping, database: Source, rejected: Path) -> Imported:
    """Add the rows of `records` to `database`, all of them or, on an error, none; what is missing of it is made.

    What is not imported is written to `rejected`, a line of JSON with place and reason each. Raises DataError when no
    row could be imported or a file cannot be written.
    """
    imported = Imported()
    with open_target(database) as insert:
        try:
            rejected.parent.mkdir(parents=True, exist_ok=True)
            with (
                atomic_write(rejected) as log,
                log.open("w", encoding="utf-8", errors="backslashreplace") as lines,
            ):
                _write(records, mapping, insert, lines, imported)
        except OSError as error:
            raise DataError(f"cannot write {rejected}: {error}", hint="choose another file with --rejected") from error
        _check(imported)
    return imported


def _write(records: Records, mapping: TableMapping, insert: Insert, lines: TextIO, imported: Imported) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for record in records:
        row = record if isinstance(record, Rejected) else mapping.row(record)
        if isinstance(row, Row):
            key = (row.table, *sorted(row.values.items()))
            row = Rejected(row.place, "the same row again", seen[key]) if key in seen else row
            seen.setdefault(key, row.place)
        if isinstance(row, Row) and (problem := insert(row)):
            row = Rejected(row.place, "the table cannot hold it", problem)
        if isinstance(row, Rejected):
            lines.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
            _count_rejected(row, imported)
        else:
            imported.rows[row.table] += 1
            imported.filled.update((row.table, column) for column in row.values)


def _count_rejected(rejected: Rejected, imported: Imported) -> None:
    imported.rejected[rejected.reason] += 1
    examples = imported.examples.setdefault(rejected.reason, [])
    if len(examples) < _EXAMPLES:
        examples.append(rejected.place)


def _check(imported: Imported) -> None:
    if not imported.rows:
        reasons = "; ".join(f"{count} times: {reason}" for reason, count in imported.rejected.most_common(3))
        raise DataError(f"no row could be imported ({reasons or 'the source is empty'})", hint="check --mapping")
