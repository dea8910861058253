"""Make a Task from the description of a database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sql_agent.config.settings import Settings
from sql_agent.database import Database, Naming, RequiredSchema, is_url
from sql_agent.database.cell_texts import count_words
from sql_agent.database.named_values import NamedValue, best_values
from sql_agent.errors import ConfigError
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Lang, Question, Style
from sql_agent.system.files import prompt_file
from sql_agent.tasks.described.description import WORDINGS, Column, Description, Table, read_description
from sql_agent.tasks.described.generate import make_question_files
from sql_agent.tasks.described.words import wordings
from sql_agent.tasks.task import DISCLAIMER, Task, lacks_questions

_SLOT = re.compile(r"\{[^{}]*\}")
_MOST_VALUES = 5  # maximum beside a question
_FREQUENT = 50  # minimum number of occurrences of a word of asking, such as "products", in the wordings
_MOST_CHARS = 6_000  # maximum for the tables in a prompt; a longer text is replaced by the names of the columns


def described_task(path: Path) -> Task:
    """Return the task of the description at `path`. Raises ConfigError as `read_description` does."""
    description = read_description(path)
    database = _database(description, path)

    def default_database(_settings: Settings) -> Path:
        if database is None:
            raise ConfigError(f"{path} names no database", hint="set DATABASE_URL or database.path=FILE")
        return database

    def default_questions(settings: Settings, split: str) -> Path:
        return questions_folder(path, settings.data.style) / f"{split}.parquet"

    def prepare(settings: Settings, say: Callable[[str], None]) -> None:
        if lacks_questions(settings, default_questions):
            style = settings.data.style
            folder = questions_folder(path, style)
            made = make_question_files(description, task.database_source(settings), task, folder, style=style, say=say)
            say(f"Made {sum(map(len, made.values()))} questions about the database in {folder}")

    labels = {
        name: {of: column.meaning or column.label for of, column in table.columns.items()}
        for name, table in description.tables.items()
    }
    task = Task(
        name=path.stem,
        schema=RequiredSchema(
            tables={name: tuple(table.columns) for name, table in description.tables.items()},
            hint=f"check the path of the database, or describe it again: sql-agent init DB --out {path}",
            names=_namings(description),
        ),
        tool_description=f"Run one read-only {{dialect}} SELECT on the tables {', '.join(description.tables)} and get "
        "the rows as JSON.",
        disclaimer=DISCLAIMER,
        describe=lambda _lang, opened, _settings: _prompt("describe", description, opened),
        instructions=lambda _lang, opened, _settings: _prompt("system", description, opened),
        labels=lambda _lang: labels,
        question_text=with_named_values(description),
        default_database=default_database,
        default_questions=default_questions,
        questions_hint=f"run: sql-agent data questions --task {path}",
        prepare=prepare,
        words={lang: _words(description, lang) for lang in ("en", "zh")},
    )
    return task


def questions_folder(path: Path, style: Style) -> Path:
    """Return the default folder of the questions of `style` about the database that `path` describes."""
    return path.with_name(f"{path.stem}_questions" + ("" if style == "mixed" else f"_{style}"))


def _database(description: Description, path: Path) -> Path | None:
    """Return the described SQLite file. Raises ConfigError for a URL: a stranger may have written the description."""
    if description.database is None:
        return None
    if is_url(description.database):
        raise ConfigError(f"{path}: database is a URL", hint="leave it out, and set DATABASE_URL to the URL")
    return path.parent / description.database


def _namings(description: Description) -> dict[str, Naming]:
    """Return the `Naming` of each table whose rows have names."""
    return {
        name: Naming(
            table.name,
            called=table.other_names,
            beside=frozenset(table.beside),
            near={column: described.near for column, described in table.columns.items()},
            said={name: (each.label, each.plural, *each.also) for name, each in table.columns.items()},
        )
        for name, table in description.tables.items()
        if table.name is not None and table.columns[table.name].kind == "name"
    }


def _words(description: Description, lang: Lang) -> Words:
    words = wordings(lang)
    tables = description.tables.values() if lang == description.lang else ()
    yes, no = words["yes"], words["no"]
    labels = (label for table in tables for label in dict.fromkeys((table.label, table.plural)))
    return Words(
        refusals=(words["refusal"],),
        counters=(*words["counters"], *labels),
        yes_no=(yes, no),
        same=((yes, *words["same_as_yes"]), (no, *words["same_as_no"])),
    )


def _prompt(name: str, description: Description, database: Database) -> str:
    template = prompt_file(__file__, f"{name}.{description.lang}.txt")
    full, bare = ("\n".join(_tables(description, with_meanings=meanings)) for meanings in (True, False))
    tables = full if len(full) <= _MOST_CHARS else bare
    return template.replace("{dialect}", database.dialect.title).replace("{tables}", tables).strip()


def _tables(description: Description, *, with_meanings: bool) -> Iterator[str]:
    """Yield a line for each table with its columns, then a line for each link."""
    for name, table in description.tables.items():
        columns = (_column(column, of, table) if with_meanings else column for column, of in table.columns.items())
        yield f"{name}({', '.join(columns)})"
    for link in description.links:
        (source, column), (target, key) = link.source, link.target
        yield f"{source}.{column} {'contains' if link.contains else '='} {target}.{key}"


def _column(name: str, column: Column, table: Table) -> str:
    """Return the text that describes a column: its name and, if set, the label, values and separator of the items."""
    words = {*name.casefold().replace("_", " ").split(), *table.label.split()}
    label = column.meaning or column.cell_label
    said = [] if set(label.casefold().split()) <= words or column.kind == "id" else [label]
    if column.values:
        said.append("|".join(column.values))
    if column.kind == "list":
        said.append(f"a{column.separator.strip() or ','}b" if column.separator != "\n" else "one a line")
    return f"{name} {' '.join(said)}" if said else name


def with_named_values(description: Description) -> Callable[[Question, Database], str]:
    """Return a function that returns a question and, in a second line, the database values that the question names.

    An everyday word in `description.said` stands for its item, but not inside a longer value or everyday word, such as
    肿 in 肿瘤. Text that is only a part of a cell is left out if it occurs in the labels or wordings of `description`
    and the question does not put it in quotes “…”. A row is left out if many wordings contain its name, such as
    "Products".
    """
    texts = (*_texts(description), *_flat(wordings(description.lang).values()))
    wording = "\n".join(_SLOT.sub("\n", text) for text in texts).casefold()
    items = {word: item for item, words in description.said.items() for word in words if word not in wording}

    def tells(value: NamedValue, text: str) -> bool:
        named = value.value.strip("%")
        most = _FREQUENT if value.operator == "=" else 1
        return count_words(named.casefold(), wording) < most or f"“{named}”" in text

    def question_text(question: Question, database: Database) -> str:
        text = question.question
        found = database.named_values(text)
        everyday = [word for word in items if word in text]
        known = {*everyday, *(value.value.strip("%") for value in found)}
        if named := [items[word] for word in everyday if _is_beside(word, known, text)]:
            found = database.named_values("\n".join([text, *named]))
        shown = map(str, best_values([value for value in found if tells(value, text)], _MOST_VALUES))
        words = wordings(question.lang)
        return f"{text}\n{words['values']}{'; '.join(shown) or words['no_values']}"

    return question_text


def _is_beside(word: str, others: Iterable[str], text: str) -> bool:
    """Return whether `word` occurs in `text` outside the longer words of `others`."""
    for other in others:
        if word in other != word:
            text = re.sub(re.escape(other), "\n", text, flags=re.IGNORECASE)
    return word in text


def _flat(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts in nested lists and tables."""
    for value in values:
        if isinstance(value, str):
            yield value
        else:
            yield from _flat(value.values() if isinstance(value, dict) else value)


def _texts(description: Description) -> Iterator[str]:
    for table in description.tables.values():
        yield from (table.label, table.plural, *table.unknown)
        for column in table.columns.values():
            yield from (column.label, column.plural, column.meaning)
            yield from (text for key in WORDINGS for text in getattr(column, key))
            yield from (text for texts in column.then.values() for text in texts)
            yield from (text for part in column.parts.values() for text in part.ask)
