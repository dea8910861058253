"""Write the short thoughts of demonstrations, which choose the columns that the next statement reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from sql_agent.database import Database
from sql_agent.database.guard import parse
from sql_agent.database.schema import fold
from sql_agent.errors import QueryError
from sql_agent.schemas import Lang
from sql_agent.tasks.task import Task

_MOST_COLUMNS = 3  # a thought names no columns if the statement reads more

_Column = tuple[str, str]  # table and column


@dataclass(frozen=True)
class _Sentences:
    """Parts of thoughts in one language. `label` is the format of a label in `about`; `joint` joins labels."""

    look_up: str
    about: str
    label: str
    joint: str
    otherwise: str
    again: str
    query_again: str
    answer: str
    refuse: str


_SENTENCES: Mapping[Lang, _Sentences] = {
    "en": _Sentences(
        look_up="I look this up in the database.",
        about="The question is about {labels}, so I read {columns}{otherwise}.",
        label="{}",
        joint=" and ",
        otherwise=", else {columns}",
        again="That does not settle it. ",
        query_again="I query again.",
        answer="Now I can answer.",
        refuse="The database does not have this.",
    ),
    "zh": _Sentences(
        look_up="先查数据库。",
        about="问的是{labels}，查 {columns}{otherwise}。",
        label="“{}”",
        joint="和",
        otherwise="，查不到再查 {columns}",
        again="还没有查清。",
        query_again="再查一次。",
        answer="可以回答了。",
        refuse="数据库里没有这个。",
    ),
}


def answer_thought(lang: Lang) -> str:
    return _SENTENCES[lang].answer


def refusal_thought(lang: Lang) -> str:
    return _SENTENCES[lang].refuse


def query_thoughts(statements: Sequence[str], lang: Lang, task: Task, database: Database) -> Iterator[str]:
    """Yield the thought before each of `statements`, which are run one after the other.

    A thought has the columns that the statement reads, with the task's labels of these columns, then the columns of the
    later statements. Columns of row names are left out.
    """
    sentences = _SENTENCES[lang]
    read = [_columns_read(sql, task, database) for sql in statements]
    for place, columns in enumerate(read):
        others = dict.fromkeys(column for later in read[place + 1 :] for column in later if column not in columns)
        otherwise = sentences.otherwise.format(columns=_listed(list(others))) if others else ""
        about = ""
        if columns:
            labels = sentences.joint.join(sentences.label.format(_label(column, lang, task)) for column in columns)
            about = sentences.about.format(labels=labels, columns=_listed(columns), otherwise=otherwise)
        if place == 0:
            yield about or sentences.look_up
        else:
            yield sentences.again + (about or sentences.query_again)


def _listed(columns: Sequence[_Column]) -> str:
    return ", ".join(".".join(column) for column in columns)


def _label(column: _Column, lang: Lang, task: Task) -> str:
    table, name = column
    return task.labels(lang).get(table, {}).get(name) or name.replace("_", " ")


def _columns_read(sql: str, task: Task, database: Database) -> list[_Column]:
    """Return the columns that `sql` reads, except row names and row keys; [] for more than three or unreadable SQL."""
    schema = database.schema
    try:
        tree = parse(sql, database.dialect)
    except (QueryError, ParseError, TokenError, RecursionError):
        return []
    tables = {fold(t.alias_or_name): spelled for t in tree.find_all(exp.Table) if (spelled := schema.spelled(t.name))}
    found: dict[_Column, None] = {}
    for column in tree.find_all(exp.Column):
        for table in [tables.get(fold(column.table), "")] if column.table else tables.values():
            names = {fold(name): name for name in schema.columns.get(table, ())}
            naming = task.schema.names.get(table)
            skipped = {schema.row_key(table), naming.column if naming else None}
            if (name := names.get(fold(column.name))) and name not in skipped:
                found[table, name] = None
                break
    return list(found) if len(found) <= _MOST_COLUMNS else []
