"""Import a source into a database, or propose how: sql-agent data import SOURCE"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sql_agent.cli.command import DATABASE, NOT_ADVICE, SERVER, Commands, add_command, database
from sql_agent.database import Source
from sql_agent.errors import ConfigError, DataError
from sql_agent.runs.console import Ui
from sql_agent.system.messages import printable
from sql_agent.tasks.medical.importers.mapping import NOT_READ, TableMapping, medical_records, published
from sql_agent.tasks.medical.importers.proposal import ProposedField, mapping_toml, propose
from sql_agent.tasks.medical.importers.write import ImportReport, import_records
from sql_agent.tasks.medical.tables import TABLES
from sql_agent.tasks.sources import Rejected, by_reason, read_records
from sql_agent.tasks.table_import import import_table

_DESCRIPTION = """\
Add rows to the tables drugs_info and disease, from CMeKG (the package PyCMeKG),
openFDA's drug labels, CSV, JSONL, Excel, Parquet, SQLite or MySQL. HTML
entities and tags become plain text, and cells such as N/A become empty.
Without --db, nothing is imported: the command proposes a mapping of the
source's fields to columns. With --table, the source becomes a new table of any
SQLite database."""

_EXAMPLES = """
  sql-agent data import PyCMeKG-0.2.5.tar.gz --db medical.db
  sql-agent data import products.xlsx                  proposes a mapping
  sql-agent data import products.xlsx --db medical.db --mapping mapping.toml
  sql-agent data import products.csv --db env:WRITER_URL      a MySQL server
  sql-agent data import orders.csv --db shop.db --table orders
"""
_EXAMPLE_CHARS = 24


def add_import(commands: Commands) -> None:
    summary = "add your data to a database, or propose a mapping"
    parser = add_command(commands, "import", _run, summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("source", type=database, metavar="SOURCE", help=f"a file, {SERVER}")
    parser.add_argument("--db", type=database, metavar="DB",
                        help=f"database to add to: {DATABASE} (default: propose a mapping)")  # fmt: skip
    parser.add_argument("--mapping", type=Path, metavar="FILE",
                        help="TOML file that names the field of the source for each column")  # fmt: skip
    parser.add_argument("--table", metavar="NAME",
                        help="make the table NAME of all fields instead, in a SQLite file")  # fmt: skip
    parser.add_argument("--rejected", type=Path, metavar="FILE",
                        help="JSONL file for rejected records (default: DB.rejected.jsonl)")  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    ui, source, db = Ui(wraps=True), arguments.source, arguments.db
    if source == db:
        raise ConfigError(f"SOURCE and --db are both {db}", hint="name another database with --db")
    if db is None:
        if arguments.mapping or arguments.table or published(source):
            raise ConfigError("--db is missing", hint="name the database to add to")
        return _propose(source, ui)
    # Next to a SQLite file; for a server, in the working directory.
    rejected = arguments.rejected or Path(f"{db if isinstance(db, Path) else db.database}.rejected.jsonl")
    if arguments.table:
        return _import_table(arguments, rejected, ui)
    packaged = None if arguments.mapping else published(source)
    if packaged:
        mapping = TableMapping.packaged(packaged)
    else:
        mapping = TableMapping.load(arguments.mapping) if arguments.mapping else TableMapping.same_names()
    with ui.status(f"Importing {source}"):
        report = import_records(medical_records(source, mapping.sources, ui.say), mapping, db, rejected)
    if report.rows:
        ui.console.print(_coverage(report))
    added = [f"{report.rows[table]} rows of {table}" for table in TABLES if report.rows[table]]
    ui.say(f"{db}: {' and '.join(added) or 'no row'} added")
    _say_rejected(report.rejected, rejected, ui)
    for table, names in report.repeated.items():
        if names:
            ui.say(f"{table} has {len(names)} names in several rows, such as {names[0]}: no question asks about those")
    if not packaged:
        _say_columns(mapping, report, ui, given=arguments.mapping is not None)
    ui.say(NOT_ADVICE)
    return 0


def _propose(source: Source, ui: Ui) -> int:
    """Print the fields of `source`, the column proposed for each, and the mapping file."""
    with ui.status(f"Reading {source}"):
        fields = propose(read_records(source, (), ui.say))
    if not any(field.column for field in fields):
        names = ", ".join(field.name for field in fields) or "none"
        raise DataError(
            f"no field of {source} is like a column of {' or '.join(TABLES)}; its fields: {names}",
            hint="write a mapping (docs/data.md), or make a table of another database: --table NAME --db FILE",
        )
    for name in dict.fromkeys(field.source for field in fields):
        ui.console.print(_proposed(name or str(source), [field for field in fields if field.source == name]))
    ui.console.print(Text(printable(mapping_toml(fields))), soft_wrap=True)
    ui.say("")
    ui.say(
        "Nothing was imported. Correct the lines above and save them as mapping.toml, then: "
        f"sql-agent data import {source} --db medical.db --mapping mapping.toml"
    )
    return 0


def _proposed(source: str, fields: Sequence[ProposedField]) -> Table:
    filled = next((field.table for field in fields if field.table), "no table")
    table = Table("field", "example", "column", "why", title=Text(printable(f"{source} → {filled}")))
    for field in fields:
        example = field.example[:_EXAMPLE_CHARS] + ("…" if len(field.example) > _EXAMPLE_CHARS else "")
        cells = (field.name, example or "(empty)", field.column or "–", field.reason or "not imported: nothing like it")
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _import_table(arguments: argparse.Namespace, rejected: Path, ui: Ui) -> int:
    source, db, name = arguments.source, arguments.db, arguments.table
    if arguments.mapping or not isinstance(db, Path):
        raise ConfigError("--table makes a table of a SQLite file, without a mapping", hint="leave out --mapping, and "
                          "give a file as --db")  # fmt: skip
    with ui.status(f"Importing {source}"):
        made = import_table(read_records(source, (name,), ui.say), name, db, rejected)
    table = Table("column", "type", "filled", "share")
    for column, count in made.filled.items():
        table.add_row(Text(printable(column)), made.types[column], str(count), f"{count / made.rows:.1%}")
    ui.console.print(table)
    ui.say(f"{db}: {made.rows} rows in the new table {name}")
    if made.empty:
        ui.say(f"not imported, because no row fills them: {', '.join(made.empty)}")
    if made.repeated:
        ui.say(f"{made.repeated} rows are the same as another row, and were kept")
    _say_rejected(made.rejected, rejected, ui)
    ui.say(f"Describe the database: sql-agent init {db}")
    return 0


def _say_rejected(rejected: Sequence[Rejected], path: Path, ui: Ui) -> None:
    for reason, places in by_reason(rejected).items():
        ui.say(f"{len(places)} rejected: {reason} ({', '.join(places[:3])}{', …' if len(places) > 3 else ''})")
    ui.say(f"{len(rejected)} records were rejected: {path}" if rejected else "no record was rejected")


def _say_columns(mapping: TableMapping, report: ImportReport, ui: Ui, *, given: bool) -> None:
    """Print which columns of the source were not read, and which fields of --mapping the source lacks."""
    roots = {name for field in mapping.fields for name in (field, field.partition(".")[0])}
    if unread := [name for name in report.fields if name not in roots and name not in NOT_READ]:
        ui.say(f"not imported, because nothing maps them to a column: {', '.join(unread)}")
    missing = [name for name in mapping.fields if not {name, name.partition(".")[0]} & report.fields.keys()]
    if given and missing:
        ui.say(f"in the mapping, but not in the source: {', '.join(sorted(missing))}")


def _coverage(report: ImportReport) -> Table:
    table = Table("table", "column", "filled", "share")
    for figures in table.columns[2:]:
        figures.justify = "right"
    for name, columns in TABLES.items():
        if rows := report.rows[name]:
            for column in columns:
                if filled := report.filled[name, column]:
                    table.add_row(name, column, str(filled), f"{filled / rows:.1%}")
            if empty := [column for column in columns if column not in NOT_READ and not report.filled[name, column]]:
                table.add_row(name, f"{len(empty)} more", "0", "0.0%")
            table.add_section()
    return table
