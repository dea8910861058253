"""`sql-agent data build` makes the sample database, `questions` makes questions about any database."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from sql_agent.config.default_paths import questions_folder, sample_path
from sql_agent.data.medical.prepare import make_question_files
from sql_agent.data.medical.questions.generate import count_by_type
from sql_agent.data.medical.sample_database import build_database
from sql_agent.data.medical.sample_facts import load_facts
from sql_agent.schemas import Lang, Question, TaskType


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the two commands and return the exit code."""
    arguments = _parser().parse_args(argv)
    console = Console(highlight=False)
    if arguments.command == "build":
        _build(arguments.lang, arguments.out or sample_path(arguments.lang), console)
    else:
        _questions(arguments, console)
    return 0


def _build(lang: Lang, path: Path, console: Console) -> None:
    counts = build_database(load_facts(), lang, path)
    console.print(f"{path}: {counts['drugs_info']} drugs, {counts['disease']} diseases", soft_wrap=True)


def _questions(arguments: argparse.Namespace, console: Console) -> None:
    folder = arguments.out or questions_folder(arguments.db)
    made = make_question_files(arguments.db, folder, arguments.lang, seed=arguments.seed, per_type=arguments.per_type)
    console.print(_table(made))
    console.print(f"{folder}: train.parquet, val.parquet, test.parquet, qa_dataset.jsonl", soft_wrap=True)
    for split, questions in made.items():
        if missing := set(get_args(TaskType)) - set(count_by_type(questions)):
            console.print(f"{split} has no question of: {', '.join(sorted(missing))}", soft_wrap=True)


def _table(made: Mapping[str, Sequence[Question]]) -> Table:
    table = Table("task type", *made, "all")
    counts = {split: count_by_type(questions) for split, questions in made.items()}
    for task_type in get_args(TaskType):
        row = [counts[split][task_type] for split in made]
        table.add_row(task_type, *map(str, (*row, sum(row))))
    totals = [len(questions) for questions in made.values()]
    table.add_section()
    table.add_row("all", *map(str, (*totals, sum(totals))))
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sql-agent data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make the SQLite file of the sample facts")
    build.add_argument("--lang", choices=get_args(Lang), required=True)
    build.add_argument("--out", type=Path, help="SQLite file to write (default: var/sample_LANG.db)")
    questions = commands.add_parser("questions", help="make questions with gold SQL, answer and evidence")
    questions.add_argument("--db", type=Path, required=True, help="a SQLite file with drugs_info and disease")
    questions.add_argument("--out", type=Path, help="folder to write to (default: var/questions_NAME/)")
    questions.add_argument("--seed", type=int, default=0)
    questions.add_argument("--per-type", type=_positive, help="questions of each task type (default: by size)")
    questions.add_argument("--lang", choices=get_args(Lang), help="default: the language of the names")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number
