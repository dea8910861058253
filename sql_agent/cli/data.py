"""Make, import or copy a database, and make and check questions about it: sql-agent data COMMAND"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from sql_agent.cli.command import SERVER, Commands, add_command, database, flag_settings, new_parser
from sql_agent.cli.data_check import add_check
from sql_agent.cli.data_import import add_import
from sql_agent.cli.data_questions import add_questions
from sql_agent.cli.data_teacher import add_facts, add_filter
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.medical_task import sample_path
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.server_copy import copy_to_server, make_reader

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

_LOAD_EXAMPLES = """
  export ADMIN_URL='mysql://root:PASSWORD@127.0.0.1/medical'
  sql-agent data load --db env:ADMIN_URL --reader reader
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("data", _DESCRIPTION, _EXAMPLES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_build(commands)
    add_import(commands)
    _add_load(commands)
    add_questions(commands)
    add_check(commands)
    add_filter(commands)
    add_facts(commands)
    arguments = parser.parse_args(argv)
    arguments.flags = flag_settings(arguments)
    code: int = arguments.run(arguments)
    return code


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
    parser.add_argument("--db", type=database, required=True, metavar="URL", help=f"target: {SERVER}")
    parser.add_argument("--from", dest="from_file", type=Path, metavar="FILE", help="SQLite file (default: the sample)")
    parser.add_argument("--lang", choices=get_args(Lang), default="en", help="language of the sample (default: en)")
    parser.add_argument("--replace", action="store_true", help="replace the two tables if they exist")
    parser.add_argument("--reader", metavar="NAME", help="create a user who may only read them, and print its URL")


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
