"""A second task, written as a user would write one: who borrowed which book of a small library and of its branch."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from sql_agent.config.settings import Settings
from sql_agent.database import Database, Naming, RequiredSchema
from sql_agent.errors import DataError
from sql_agent.reward import Judge, JudgeCase, Verdict
from sql_agent.schemas import Lang, Question, RolloutRecord
from sql_agent.tasks.task import Split, Task

BOOKS = [("Dune", "Frank Herbert", "B2"), ("Emma", "Jane Austen", "A1"), ("Ulysses", "James Joyce", "C3")]
LOANS = [("Dune", "Ada"), ("Emma", "Grace")]
BRANCH = "branch"
BRANCH_BOOKS = [("Dune", "Frank Herbert", "Z9")]
BRANCH_LOANS = [("Dune", "Edsger")]


def _question(split: Split, kind: str, title: str, answer: str) -> Question:
    table = "books" if kind == "shelf" else "loans"
    return Question(
        id=f"{split}-{kind}-{title}",
        question=f"On which shelf is {title}?" if kind == "shelf" else f"Who borrowed {title}?",
        answer=answer,
        sql=f"SELECT {kind} FROM {table} WHERE title = '{title}'",
        task_type=kind,
    )


QUESTIONS: Mapping[Split, Sequence[Question]] = {
    "train": [_question("train", "shelf", "Dune", "B2"), _question("train", "reader", "Emma", "Grace")],
    "val": [_question("val", "shelf", "Ulysses", "C3"), _question("val", "reader", "Dune", "Ada")],
}


NATURAL = [
    Question(
        id="natural-shelf",
        question="Hi, I can't find Dune at the branch?",
        answer="Z9",
        sql="SELECT shelf FROM books WHERE title = 'Dune'",
        task_type="shelf",
        database=BRANCH,
    ),
    Question(
        id="natural-reader",
        question="So who's got Dune at the branch now?",
        answer="Edsger",
        sql="SELECT reader FROM loans WHERE title = 'Dune'",
        task_type="reader",
        database=BRANCH,
    ),
]


class ExactJudge:
    """Gives 1 for an answer that is the reference to the letter, else 0."""

    name = "exact"
    identity = "exact/1"

    async def grade(self, case: JudgeCase) -> Verdict:
        return Verdict(score=float(case.answer == case.question.answer))


def exact_judge(_settings: Settings, _words: object, *, alone: bool = False) -> Judge:
    return ExactJudge()


def instructions(_lang: Lang, database: Database, _settings: Settings) -> str:
    tables = "; ".join(f"{table}({', '.join(columns)})" for table, columns in database.schema.columns.items())
    return f"Answer from the library's tables: {tables}."


def database(settings: Settings) -> Path:
    return settings.runs_dir / "library.db"


def named_database(settings: Settings, name: str) -> Path:
    if name != BRANCH:
        raise DataError(f"the library has no {name}")
    return settings.runs_dir / f"{name}.db"


def questions(settings: Settings, split: Split) -> Path:
    return settings.runs_dir / f"library-{split}.jsonl"


def prepare(settings: Settings, say: Callable[[str], None]) -> None:
    """Write the databases and the questions where they are missing."""
    path = database(settings)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, "title TEXT, reader TEXT", BOOKS, LOANS)
    _write(
        named_database(settings, BRANCH),
        "title TEXT, reader TEXT, due TEXT DEFAULT 'Monday'",
        BRANCH_BOOKS,
        BRANCH_LOANS,
    )
    for split, asked in QUESTIONS.items():
        lines = "".join(question.model_dump_json() + "\n" for question in asked)
        questions(settings, split).write_text(lines, encoding="utf-8")
    say(f"Made the library {path}")


def _write(path: Path, loans: str, books: Sequence[tuple[str, ...]], lent: Sequence[tuple[str, ...]]) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE Books (title TEXT, author TEXT, shelf TEXT)")
    connection.execute(f"CREATE TABLE Loans ({loans})")
    connection.execute("CREATE TABLE drugs_info (id INTEGER, med_name TEXT)")  # another program's, with a row
    connection.execute("INSERT INTO drugs_info VALUES (1, 'secret')")
    connection.executemany("INSERT INTO books VALUES (?, ?, ?)", books)
    connection.executemany("INSERT INTO loans (title, reader) VALUES (?, ?)", lent)
    connection.commit()
    connection.close()


def words(records: Sequence[RolloutRecord]) -> dict[str, float]:
    return {"library/words": fmean(len(record.answer.split()) for record in records)} if records else {}


TASK = Task(
    name="library",
    schema=RequiredSchema(
        {"Books": ("title", "shelf"), "Loans": ("title", "reader")},
        hint="ask the librarian",
        names={"Books": Naming("title"), "Loans": Naming("title")},
    ),
    tool_description="Run one SELECT on books and loans.",
    disclaimer="Please return your books.",
    describe=instructions,
    instructions=instructions,
    default_database=database,
    default_questions=questions,
    questions_hint="ask the librarian about {database}",
    prepare=prepare,
    named_database=named_database,
    natural_questions=lambda _lang: NATURAL,
    make_judge=exact_judge,
    metrics=words,
)
