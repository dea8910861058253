"""Make, import or copy a database and make questions about it: sql-agent data build | load | import | questions | …"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from sql_agent.cli import data_check, data_teacher
from sql_agent.cli.parser import DATABASE, NOT_ADVICE, database, help_text, positive
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.errors import ConfigError
from sql_agent.runs.console import Ui, open_console
from sql_agent.schemas import Lang, Question, Style
from sql_agent.tasks.medical.importers.mapping import NOT_READ, TableMapping
from sql_agent.tasks.medical.importers.sources import packaged_mapping, read_records
from sql_agent.tasks.medical.importers.write import ImportReport, import_records
from sql_agent.tasks.medical.prepare import make_question_files, questions_folder, sample_path
from sql_agent.tasks.medical.questions.generate import count_by_type, task_types
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.server_copy import copy_to_server, make_reader
from sql_agent.tasks.medical.tables import TABLES

_DESCRIPTION = """\
Make the sample database or import your data, make questions with gold SQL,
answer and evidence about any database with the tables drugs_info and disease,
or check your own questions."""

_BUILD_DESCRIPTION = """\
Make the SQLite file of the sample facts about drugs and diseases. The bytes are
always the same."""

_LOAD_DESCRIPTION = """\
Copy the sample, or your own SQLite file, to a MySQL or MariaDB server."""

_QUESTIONS_DESCRIPTION = """\
Make train, val and test questions about a database. Each has gold SQL, which
was run, the answer, and evidence: where the answer was read. With --writer llm
the model TEACHER_MODEL rewords them; a new text is used only if the teacher,
given the text and the rows, gives the reference answer. After an interrupt the
same command continues."""

_IMPORT_DESCRIPTION = """\
Add drugs and diseases from another source to the tables drugs_info and disease
of a SQLite file or a MySQL or MariaDB server: CMeKG (the package PyCMeKG),
openFDA's drug labels, CSV, JSONL, SQLite or MySQL. HTML entities and tags
become plain text, and cells such as N/A are empty. Prints the rows, how many
cells of each column they fill, and what was rejected; --rejected lists each of
those with its place."""

_IMPORT = """\
  sql-agent data import PyCMeKG-0.2.5.tar.gz --db medical.db
  sql-agent data import drug-label-0001-of-0013.json.zip --db labels.db
  sql-agent data import products.csv --db medical.db --mapping mapping.toml
  sql-agent data import products.csv --db mysql://writer:PASSWORD@127.0.0.1/shop
"""
_BUILD = """
  sql-agent data build --lang en
"""
_LOAD = """
  sql-agent data load --db mysql://root@127.0.0.1/medical --reader reader
"""
_QUESTIONS = """\
  sql-agent data questions --db var/sample_en.db
  sql-agent data questions --db /data/medical.db --per-type 200 --out mine
  sql-agent data questions --db /data/medical.db --style template --out formal
  sql-agent data questions --db my.db --writer llm --writer-share 0.5
"""
_EXAMPLES = "".join(
    (
        _BUILD,
        _LOAD,
        _IMPORT,
        _QUESTIONS,
        data_check.EXAMPLES,
        data_teacher.FILTER_EXAMPLES,
        data_teacher.FACTS_EXAMPLES,
    )
)
# The commands that other modules define.
_IN_MODULES: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "check": data_check.run,
    "facts": data_teacher.run_facts,
    "filter": data_teacher.run_filter,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands and return the exit code."""
    arguments = _parser().parse_args(argv)
    if run := _IN_MODULES.get(arguments.command):
        return run(arguments)
    console = open_console()
    if arguments.command == "load":
        _load(arguments, console)
    elif arguments.command == "import":
        _import(arguments, Ui(console, wraps=True))
    elif arguments.command == "build":
        _build(arguments.lang, arguments.out or sample_path(arguments.lang), console)
    else:
        _questions(arguments, console)
    return 0


def _build(lang: Lang, path: Path, console: Console) -> None:
    counts = build_database(load_facts(), lang, path)
    console.print(f"{path}: {', '.join(f'{count} rows in {table}' for table, count in counts.items())}", soft_wrap=True)


def _load(arguments: argparse.Namespace, console: Console) -> None:
    address = arguments.db
    if not isinstance(address, ServerAddress):
        raise ConfigError(f"--db {address} is a file", hint="give mysql+pymysql://USER:PASSWORD@HOST/DATABASE")
    path = arguments.from_file or sample_path(arguments.lang)
    if arguments.from_file is None and not path.exists():
        _build(arguments.lang, path, console)
    counts = copy_to_server(path, address, over=arguments.replace)
    console.print(f"{address}: {', '.join(f'{n} rows in {table}' for table, n in counts.items())}", soft_wrap=True)
    if arguments.reader:
        reader = make_reader(address, arguments.reader)
        console.print("This user may only read the two tables. The password is not shown again:")
        print(f"DATABASE_URL={reader.url}")


def _import(arguments: argparse.Namespace, ui: Ui) -> None:
    source, db = arguments.source, arguments.db
    if source == db:
        raise ConfigError(f"SOURCE and --db are both {db}", hint="name another database with --db")
    # Beside a file; for a server, in the working directory.
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


def _say_columns(mapping: TableMapping, report: ImportReport, ui: Ui, *, given: bool) -> None:
    """Print the columns of the source that were not read, and those of --mapping that it does not have."""
    roots = {name for field in mapping.fields for name in (field, field.partition(".")[0])}
    if unread := [name for name in report.fields if name not in roots and name not in NOT_READ]:
        ui.say(f"not imported, because no column of ours takes them: {', '.join(unread)}")
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


def _questions(arguments: argparse.Namespace, console: Console) -> None:
    folder = arguments.out or questions_folder(arguments.db, arguments.style)
    made = make_question_files(
        arguments.db,
        folder,
        arguments.lang,
        seed=arguments.seed,
        per_type=arguments.per_type,
        style=arguments.style,
        rewrite=data_teacher.rewriting(arguments, folder, Ui(console, wraps=True)),
    )
    wanted = task_types(arguments.style)
    console.print(_table(made, wanted))
    console.print(f"{folder}: train.parquet, val.parquet, test.parquet, qa_dataset.jsonl", soft_wrap=True)
    for split, questions in made.items():
        if missing := set(wanted) - set(count_by_type(questions)):
            console.print(f"{split} has no question of: {', '.join(sorted(missing))}", soft_wrap=True)


def _table(made: Mapping[str, Sequence[Question]], wanted: Sequence[str]) -> Table:
    table = Table("task type", *made, "all")
    counts = {split: count_by_type(questions) for split, questions in made.items()}
    for task_type in wanted:
        row = [counts[split][task_type] for split in made]
        table.add_row(task_type, *map(str, (*row, sum(row))))
    totals = [len(questions) for questions in made.values()]
    table.add_section()
    table.add_row("all", *map(str, (*totals, sum(totals))))
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sql-agent data", **help_text(_DESCRIPTION, _EXAMPLES))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, description: str, examples: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, **help_text(description, examples))

    build = add("build", "make the sample database", _BUILD_DESCRIPTION, _BUILD)
    build.add_argument("--lang", choices=get_args(Lang), required=True, help="language of names and texts")
    build.add_argument("--out", type=Path, metavar="FILE", help="SQLite file to write (default: var/sample_LANG.db)")
    teacher = data_teacher
    teacher.add_filter_arguments(
        add("filter", "keep or drop questions", teacher.FILTER_DESCRIPTION, teacher.FILTER_EXAMPLES)
    )
    imports = add("import", "bring your data into the two tables", _IMPORT_DESCRIPTION, _IMPORT)
    imports.add_argument("source", type=database, metavar="SOURCE",
                         help="a file, or mysql+pymysql://USER:PASSWORD@HOST/DATABASE")  # fmt: skip
    imports.add_argument("--db", type=database, required=True, metavar="DB", help=f"{DATABASE} to add to")
    imports.add_argument("--mapping", type=Path, metavar="FILE", help="TOML file that says which field is which column")
    imports.add_argument("--rejected", type=Path, metavar="FILE", help="default: DB.rejected.jsonl")
    load = add("load", "copy it to a server", _LOAD_DESCRIPTION, _LOAD)
    load.add_argument("--db", type=database, required=True, metavar="URL",
                      help="where to: mysql+pymysql://USER:PASSWORD@HOST/DATABASE")  # fmt: skip
    load.add_argument("--from", dest="from_file", type=Path, metavar="FILE", help="SQLite file (default: the sample)")
    load.add_argument("--lang", choices=get_args(Lang), default="en", help="language of the sample (default: en)")
    load.add_argument("--replace", action="store_true", help="replace the two tables if they exist")
    load.add_argument("--reader", metavar="NAME", help="create a user who may only read them, and print its URL")
    questions = add("questions", "make questions about a database", _QUESTIONS_DESCRIPTION, _QUESTIONS)
    questions.add_argument("--db", type=database, required=True, metavar="DB", help=f"{DATABASE} to ask about")
    questions.add_argument("--out", type=Path, metavar="FOLDER", help="default: var/questions_NAME of the database, "
                           "with _STYLE unless mixed")  # fmt: skip
    questions.add_argument("--seed", type=int, default=0, help="seed of the choice of questions (default: 0)")
    questions.add_argument("--per-type", type=positive, metavar="N", help="questions of each task type (default: by "
                           "the size of the database)")  # fmt: skip
    questions.add_argument("--style", choices=get_args(Style), default="mixed", help="formal templates, as people "
                           "ask, or a third and two thirds (default: mixed)")  # fmt: skip
    questions.add_argument("--lang", choices=get_args(Lang), help="default: the language of the names")
    teacher.add_writer_arguments(questions)
    data_check.add_arguments(
        add("check", "check question files against a database", data_check.DESCRIPTION, data_check.EXAMPLES)
    )
    teacher.add_facts_arguments(
        add("facts", "turn references of prose into facts", teacher.FACTS_DESCRIPTION, teacher.FACTS_EXAMPLES)
    )
    return parser
