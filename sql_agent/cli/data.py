"""Make the sample database or import your data, make questions with gold SQL,
answer and evidence about any database with the tables drugs_info and disease,
or check your own questions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from rich.table import Table
from rich.text import Text

from sql_agent.cli.command import (
    DATABASE,
    NOT_ADVICE,
    SERVER,
    Commands,
    add_command,
    database,
    flag_settings,
    new_parser,
)
from sql_agent.cli.data_check import add_check
from sql_agent.cli.data_questions import add_questions
from sql_agent.cli.data_teacher import add_facts, add_filter
from sql_agent.database import Source
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.errors import ConfigError, DataError
from sql_agent.runs.console import Ui
from sql_agent.schemas import Lang
from sql_agent.system.messages import printable
from sql_agent.tasks.medical.importers.mapping import NOT_READ, TableMapping, medical_records, published
from sql_agent.tasks.medical.importers.proposal import mapping_toml, propose
from sql_agent.tasks.medical.importers.write import ImportReport, import_records
from sql_agent.tasks.medical.medical_task import sample_path
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.server_copy import copy_to_server, make_reader
from sql_agent.tasks.medical.tables import TABLES
from sql_agent.tasks.read_records import Rejected, by_reason, read_records
from sql_agent.tasks.write_table import import_table

_EXAMPLES = """
  sql-agent data build --lang en
  sql-agent data import products.csv --db medical.db --mapping mapping.toml
  sql-agent data questions --db medical.db
  sql-agent data check my.jsonl --db medical.db
"""

_BUILD = """\
Make the SQLite file of the sample facts about drugs and diseases. Every run
writes the same bytes."""

_LOAD = """\
Copy the tables drugs_info and disease, of the sample or of your own SQLite
file, to a MySQL or MariaDB server."""

_LOAD_EXAMPLES = """
  export ADMIN_URL='mysql://root:PASSWORD@127.0.0.1/medical'
  sql-agent data load --db env:ADMIN_URL --reader reader
"""

_IMPORT = """\
Add rows to the tables drugs_info and disease, from CMeKG (the package PyCMeKG),
openFDA's drug labels, CSV, JSONL, Excel, Parquet, SQLite or MySQL. HTML
entities and tags become plain text, and cells such as N/A become empty.
Without --db, nothing is imported: the command proposes a mapping of the
source's fields to columns. With --table, the source becomes a new table of a
SQLite database, which need not be medical."""

_IMPORT_EXAMPLES = """
  sql-agent data import PyCMeKG-0.2.5.tar.gz --db medical.db
  sql-agent data import products.xlsx                  proposes a mapping
  sql-agent data import products.xlsx --db medical.db --mapping mapping.toml
  sql-agent data import products.csv --db env:WRITER_URL      a MySQL server
  sql-agent data import orders.csv --db shop.db --table orders
"""
_EXAMPLE_CHARS = 24


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("data", __doc__, _EXAMPLES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_build(commands)
    _add_import(commands)
    _add_load(commands)
    add_questions(commands)
    add_check(commands)
    add_filter(commands)
    add_facts(commands)
    arguments = parser.parse_args(argv)
    arguments.flags = flag_settings(arguments)
    return int(arguments.run(arguments))


def _add_build(commands: Commands) -> None:
    example = "  sql-agent data build --lang en"
    parser = add_command(commands, "build", _build, "make the sample database", _BUILD, example)
    parser.add_argument("--lang", choices=get_args(Lang), required=True, help="language of names and texts")
    parser.add_argument("--out", type=Path, metavar="FILE", help="SQLite file to write (default: var/sample_LANG.db)")


def _build(arguments: argparse.Namespace) -> int:
    path = arguments.out or sample_path(arguments.lang)
    _say_rows(path, build_database(load_facts(), arguments.lang, path))
    return 0


def _say_rows(where: object, counts: Mapping[str, int]) -> None:
    print(f"{where}: {', '.join(f'{count} rows in {table}' for table, count in counts.items())}")


def _add_load(commands: Commands) -> None:
    summary = "copy a database to a MySQL or MariaDB server"
    parser = add_command(commands, "load", _load, summary, _LOAD, _LOAD_EXAMPLES)
    add = parser.add_argument
    add("--db", type=database, required=True, metavar="URL", help=f"target: {SERVER}")
    add("--from", dest="from_file", type=Path, metavar="FILE", help="SQLite file (default: the sample)")
    add("--lang", choices=get_args(Lang), default="en", help="language of the sample (default: en)")
    add("--replace", action="store_true", help="replace the two tables if they exist")
    add("--reader", metavar="NAME", help="create a read-only user of the two tables, and print its URL")


def _load(arguments: argparse.Namespace) -> int:
    address = arguments.db
    if not isinstance(address, ServerAddress):
        raise ConfigError(f"--db {address} is a file", hint=f"give {SERVER}")
    path = arguments.from_file or sample_path(arguments.lang)
    if arguments.from_file is None and not path.exists():
        _say_rows(path, build_database(load_facts(), arguments.lang, path))
    _say_rows(address, copy_to_server(path, address, over=arguments.replace))
    if arguments.reader:
        reader = make_reader(address, arguments.reader)
        print("This user may only read the two tables. The password is not shown again:")
        print(f"DATABASE_URL={reader.url}")
    return 0


def _add_import(commands: Commands) -> None:
    summary = "add your data to a database, or propose a mapping of its fields"
    parser = add_command(commands, "import", _import, summary, _IMPORT, _IMPORT_EXAMPLES)
    add = parser.add_argument
    add("source", type=database, metavar="SOURCE", help=f"a file, {SERVER}")
    add("--db", type=database, metavar="DB", help=f"database to add to: {DATABASE} (default: propose a mapping)")
    add("--mapping", type=Path, metavar="FILE", help="TOML file that names the field of the source for each column")
    add("--table", metavar="NAME", help="import all fields into a new table NAME of a SQLite file")
    add("--rejected", type=Path, metavar="FILE", help="JSONL file for rejected records (default: DB.rejected.jsonl)")


def _import(arguments: argparse.Namespace) -> int:
    ui, source, db = Ui(wraps=True), arguments.source, arguments.db
    if source == db:
        raise ConfigError(f"SOURCE and --db are both {db}", hint="name another database with --db")
    if db is None:
        if arguments.mapping or arguments.table or published(source):
            raise ConfigError("--db is missing", hint="name the database to add to")
        return _propose(source, ui)
    # Rejected records are written next to a SQLite file, or, for a server, into the working directory.
    rejected = arguments.rejected or Path(f"{db if isinstance(db, Path) else db.database}.rejected.jsonl")
    if arguments.table:
        return _import_table(arguments, rejected, ui)
    packaged = None if arguments.mapping else published(source)
    if arguments.mapping:
        mapping = TableMapping.load(arguments.mapping)
    else:
        mapping = TableMapping.packaged(packaged) if packaged else TableMapping.same_names()
    with ui.status(f"Importing {source}"):
        report = import_records(medical_records(source, mapping.sources, ui.say), mapping, db, rejected)
    if report.rows:
        ui.console.print(_coverage(report))
    added = [f"{report.rows[table]} rows of {table}" for table in TABLES if report.rows[table]]
    ui.say(f"{db}: {' and '.join(added) or 'no row'} added")
    _say_rejected(report.rejected, rejected, ui)
    for table, names in report.repeated.items():
        if names:
            ui.say(f"{table} has {len(names)} names in several rows, such as {names[0]}: no question asks about them")
    if not packaged:
        roots = {name for field in mapping.fields for name in (field, field.partition(".")[0])}
        if unread := [name for name in report.fields if name not in roots and name not in NOT_READ]:
            ui.say(f"not imported, because nothing maps them to a column: {', '.join(unread)}")
    missing = [name for name in mapping.fields if not {name, name.partition(".")[0]} & report.fields.keys()]
    if arguments.mapping and missing:
        ui.say(f"in the mapping, but not in the source: {', '.join(sorted(missing))}")
    ui.say(NOT_ADVICE)
    return 0


def _propose(source: Source, ui: Ui) -> int:
    """Print the fields of `source`, the column proposed for each, and the mapping file."""
    with ui.status(f"Reading {source}"):
        fields = propose(read_records(source, (), ui.say))
    if not any(field.column for field in fields):
        names = ", ".join(field.name for field in fields) or "none"
        raise DataError(
            f"no field of {source} resembles a column of {' or '.join(TABLES)}; its fields: {names}",
            hint="write a mapping (docs/data.md), or make the source a new table: --table NAME --db FILE",
        )
    for name in dict.fromkeys(field.source for field in fields):
        of_source = [field for field in fields if field.source == name]
        filled = next((field.table for field in of_source if field.table), "no table")
        table = Table("field", "example", "column", "why", title=Text(printable(f"{name or source} → {filled}")))
        for field in of_source:
            example = field.example[:_EXAMPLE_CHARS] + "…" * (len(field.example) > _EXAMPLE_CHARS)
            cells = (example or "(empty)", field.column or "–", field.reason or "not imported: nothing like it")
            table.add_row(*(Text(printable(cell)) for cell in (field.name, *cells)))
        ui.console.print(table)
    ui.console.print(Text(printable(mapping_toml(fields))), soft_wrap=True)
    ui.say("")
    ui.say(
        "Nothing was imported. Correct the lines above and save them as mapping.toml, then: "
        f"sql-agent data import {source} --db medical.db --mapping mapping.toml"
    )
    return 0


def _import_table(arguments: argparse.Namespace, rejected: Path, ui: Ui) -> int:
    source, db, name = arguments.source, arguments.db, arguments.table
    if arguments.mapping or not isinstance(db, Path):
        raise ConfigError("--table needs a SQLite file as --db, and no --mapping", hint="leave out --mapping, and "
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
