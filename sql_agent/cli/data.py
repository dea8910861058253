"""Make, import or copy a database, and make and check questions about it: sql-agent data COMMAND"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from sql_agent.cli.command import DATABASE, NOT_ADVICE, SERVER, Commands, add_command, database, help_text
from sql_agent.cli.data_check import add_check
from sql_agent.cli.data_questions import add_questions
from sql_agent.cli.data_teacher import add_facts, add_filter
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.errors import ConfigError
from sql_agent.runs.console import Ui, open_console
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.importers.mapping import NOT_READ, TableMapping
from sql_agent.tasks.medical.importers.sources import packaged_mapping, read_records
from sql_agent.tasks.medical.importers.write import ImportReport, import_records
from sql_agent.tasks.medical.medical_task import sample_path
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.server_copy import copy_to_server, make_reader
from sql_agent.tasks.medical.tables import TABLES

_DESCRIPTION = """\
Make the sample database or import your data, make questions with gold SQL,
answer and evidence about any database with the tables drugs_info and disease,
or check your own questions."""

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

_IMPORT = """\
Add rows to the tables drugs_info and disease, from CMeKG (the package PyCMeKG),
openFDA's drug labels, CSV, JSONL, SQLite or MySQL. HTML entities and tags
become plain text, and cells such as N/A become empty. Prints how many rows were
added, how many cells of each column are filled, and why records were rejected."""

_LOAD_EXAMPLES = """
  export ADMIN_URL='mysql://root:PASSWORD@127.0.0.1/medical'
  sql-agent data load --db env:ADMIN_URL --reader reader
"""
_IMPORT_EXAMPLES = """
  sql-agent data import PyCMeKG-0.2.5.tar.gz --db medical.db
  sql-agent data import drug-label-0001-of-0013.json.zip --db labels.db
  sql-agent data import products.csv --db medical.db --mapping mapping.toml
  sql-agent data import products.csv --db env:WRITER_URL      a MySQL server
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand and return its exit code."""
    parser = argparse.ArgumentParser(prog="sql-agent data", **help_text(_DESCRIPTION, _EXAMPLES))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_build(commands)
    _add_import(commands)
    _add_load(commands)
    add_questions(commands)
    add_check(commands)
    add_filter(commands)
    add_facts(commands)
    arguments = parser.parse_args(argv)
    code: int = arguments.run(arguments)
    return code


def _add_build(commands: Commands) -> None:
    parser = add_command(commands, "build", "make the sample database", _BUILD, "  sql-agent data build --lang en")
    parser.set_defaults(run=_build)
    parser.add_argument("--lang", choices=get_args(Lang), required=True, help="language of names and texts")
    parser.add_argument("--out", type=Path, metavar="FILE", help="SQLite file to write (default: var/sample_LANG.db)")


def _build(arguments: argparse.Namespace) -> int:
    _build_sample(arguments.lang, arguments.out or sample_path(arguments.lang), open_console())
    return 0


def _build_sample(lang: Lang, path: Path, console: Console) -> None:
    counts = build_database(load_facts(), lang, path)
    console.print(f"{path}: {', '.join(f'{count} rows in {table}' for table, count in counts.items())}", soft_wrap=True)


def _add_load(commands: Commands) -> None:
    summary = "copy a database to a MySQL or MariaDB server"
    parser = add_command(commands, "load", summary, _LOAD, _LOAD_EXAMPLES)
    parser.set_defaults(run=_load)
    parser.add_argument("--db", type=database, required=True, metavar="URL", help=f"target: {SERVER}")
    parser.add_argument("--from", dest="from_file", type=Path, metavar="FILE", help="SQLite file (default: the sample)")
    parser.add_argument("--lang", choices=get_args(Lang), default="en", help="language of the sample (default: en)")
    parser.add_argument("--replace", action="store_true", help="replace the two tables if they exist")
    parser.add_argument("--reader", metavar="NAME", help="create a user who may only read them, and print its URL")


def _load(arguments: argparse.Namespace) -> int:
    console = open_console()
    address = arguments.db
    if not isinstance(address, ServerAddress):
        raise ConfigError(
            f"--db {address} is a file",
            hint=f"give {SERVER}",
        )
    path = arguments.from_file or sample_path(arguments.lang)
    if arguments.from_file is None and not path.exists():
        _build_sample(arguments.lang, path, console)
    counts = copy_to_server(path, address, over=arguments.replace)
    console.print(f"{address}: {', '.join(f'{n} rows in {table}' for table, n in counts.items())}", soft_wrap=True)
    if arguments.reader:
        reader = make_reader(address, arguments.reader)
        console.print("This user may only read the two tables. The password is not shown again:")
        print(f"DATABASE_URL={reader.url}")
    return 0


def _add_import(commands: Commands) -> None:
    summary = "add your data to the tables drugs_info and disease"
    parser = add_command(commands, "import", summary, _IMPORT, _IMPORT_EXAMPLES)
    parser.set_defaults(run=_import)
    parser.add_argument("source", type=database, metavar="SOURCE", help=f"a file, {SERVER}")
    parser.add_argument("--db", type=database, required=True, metavar="DB", help=f"database to add to: {DATABASE}")
    parser.add_argument("--mapping", type=Path, metavar="FILE",
                        help="TOML file that names the field of the source for each column")  # fmt: skip
    parser.add_argument("--rejected", type=Path, metavar="FILE",
                        help="JSONL file for rejected records (default: DB.rejected.jsonl)")  # fmt: skip


def _import(arguments: argparse.Namespace) -> int:
    ui, source, db = Ui(wraps=True), arguments.source, arguments.db
    if source == db:
        raise ConfigError(f"SOURCE and --db are both {db}", hint="name another database with --db")
    # Next to a SQLite file; for a server, in the working directory.
    rejected = arguments.rejected or Path(f"{db if isinstance(db, Path) else db.database}.rejected.jsonl")
    packaged = None if arguments.mapping else packaged_mapping(source)
    if packaged:
        mapping = TableMapping.packaged(packaged)
    else:
        mapping = TableMapping.load(arguments.mapping) if arguments.mapping else TableMapping.same_names()
    with ui.status(f"Importing {source}"):
        report = import_records(read_records(source, mapping.sources), mapping, db, rejected)
    if report.rows:
        ui.console.print(_coverage(report))
    added = [f"{report.rows[table]} rows of {table}" for table in TABLES if report.rows[table]]
    ui.say(f"{db}: {' and '.join(added) or 'no row'} added")
    for reason, places in report.by_reason().items():
        ui.say(f"{len(places)} rejected: {reason} ({', '.join(places[:3])}{', …' if len(places) > 3 else ''})")
    total = len(report.rejected)
    ui.say(f"{total} records were rejected: {rejected}" if total else "no record was rejected")
    for table, names in report.repeated.items():
        if names:
            ui.say(f"{table} has {len(names)} names in several rows, such as {names[0]}: no question asks about those")
    if not packaged:
        _say_columns(mapping, report, ui, given=arguments.mapping is not None)
    ui.say(NOT_ADVICE)
    return 0


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
