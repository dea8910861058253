"""Bring drugs and diseases from other sources into the two tables: sql-agent data import SOURCE --db DB"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from sql_agent.cli.database_argument import DATABASE, database
from sql_agent.database import Source
from sql_agent.errors import ConfigError
from sql_agent.runs.console import Ui
from sql_agent.tasks.medical.importers.mapping import NOT_READ, TableMapping
from sql_agent.tasks.medical.importers.sources import open_source
from sql_agent.tasks.medical.importers.write import Imported, import_records
from sql_agent.tasks.medical.tables import TABLES

DESCRIPTION = """\
Add drugs and diseases from another source to the tables drugs_info and disease
of a SQLite file or a MySQL or MariaDB server: CMeKG (the package PyCMeKG),
openFDA's drug labels, CSV, JSONL, SQLite or MySQL. Prints the rows, how many
cells of each column they fill, and what was rejected; --rejected has each of
those with its place."""

EXAMPLES = """\
  sql-agent data import PyCMeKG-0.2.5.tar.gz --db medical.db
  sql-agent data import drug-label-0001-of-0013.json.zip --db labels.db
  sql-agent data import products.csv --db medical.db --mapping mapping.toml
  sql-agent data import products.csv --db mysql://writer:PASSWORD@127.0.0.1/shop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sql-agent data import`."""
    parser.add_argument("source", type=database, metavar="SOURCE",
                        help="a file, or mysql+pymysql://USER:PASSWORD@HOST/DATABASE")  # fmt: skip
    parser.add_argument("--db", type=database, required=True, metavar="DB", help=f"{DATABASE} to add to")
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that says which field is which column")
    parser.add_argument("--rejected", type=Path, metavar="FILE", help="default: DB.rejected.jsonl")


def run(arguments: argparse.Namespace) -> int:
    """Import the source and print what became of it."""
    ui = Ui(wraps=True)
    mapping = TableMapping.load(arguments.mapping) if arguments.mapping else None
    if arguments.source == arguments.db:
        raise ConfigError(f"SOURCE and --db are both {arguments.db}", hint="name another database with --db")
    rejected = arguments.rejected or _beside(arguments.db)
    with ui.status(f"Importing {arguments.source}"):
        records, mapping = open_source(arguments.source, mapping)
        imported = import_records(records, mapping, arguments.db, rejected)
    ui.console.print(_coverage(imported))
    counts = " and ".join(f"{imported.rows[table]} rows of {table}" for table in TABLES if imported.rows[table])
    ui.say(f"{arguments.db}: {counts} added")
    for reason, count in imported.rejected.most_common():
        ui.say(f"{count} rejected: {reason} ({', '.join(imported.examples[reason])}{', …' if count > 3 else ''})")
    total = sum(imported.rejected.values())
    ui.say(f"{total} records were rejected: {rejected}" if total else "no record was rejected")
    ui.say("For research on retrieval, not medical advice.")
    return 0


def _beside(db: Source) -> Path:
    """Return where rejected records are listed: beside a file; for a server, in the working directory."""
    return Path(f"{db if isinstance(db, Path) else db.database}.rejected.jsonl")


def _coverage(imported: Imported) -> Table:
    table = Table("table", "column", "filled", "share")
    for figures in table.columns[2:]:
        figures.justify = "right"
    for name, columns in TABLES.items():
        if rows := imported.rows[name]:
            for column in columns:
                if filled := imported.filled[name, column]:
                    table.add_row(name, column, str(filled), f"{filled / rows:.1%}")
            if empty := [column for column in columns if column not in NOT_READ and not imported.filled[name, column]]:
                table.add_row(name, f"{len(empty)} more", "0", "0.0%")
            table.add_section()
    return table
