"""Questions about the sample database, as the command line writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sql_agent.cli.data import main
from sql_agent.schemas import Lang, Question
from sql_agent.tasks.medical.sample import build_database, load_facts

Made = dict[str, list[Question]]


def questions_folder(tmp: Path, lang: Lang, name: str) -> tuple[Path, Path]:
    database, folder = tmp / f"{name}.db", tmp / name
    build_database(load_facts(), lang, database)
    assert main(["questions", "--db", str(database), "--out", str(folder)]) == 0
    return database, folder


def everything(made: Made) -> Iterator[Question]:
    return (question for questions in made.values() for question in questions)
