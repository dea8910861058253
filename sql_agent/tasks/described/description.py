"""The description of a database: the records of NAME.toml, how to read and how to write the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from sql_agent.database.schema import fold
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang, Record
from sql_agent.system.files import read_toml
from sql_agent.system.messages import first_problem
from sql_agent.tasks.described.table_rows import DatabaseRows
from sql_agent.tasks.described.words import filled

Kind = Literal["name", "list", "text", "number", "date", "category", "flag", "id"]

_HEAD = """\
# The description of a database: what is in it, and how people ask for it. `sql-agent init` guessed it; correct it.
# label, plural  what people call a table or a column
# name           the column that names a row of the table
# kind           name, list (with its separator), text, number (with its unit), date, category, flag, or id
# ask            ways to ask for the column of one row; {name} becomes the row, {label} and {labels}
#                what `label` and `plural` say
# links          "table.column" that refers to "table.column"; contains: the first is a text with names of the second
# docs/any_database.md lists the further wordings that a person can add.
"""
_STOP = re.compile(r"[.!?]\s+\S|[。！？](?=.)")
_LEAST_PROSE = 80  # minimum median number of characters of a column of prose
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


Wordings = tuple[str, ...]
# The fields of a column that are lists of wordings.
WORDINGS = (
    "ask",
    "ask_two",
    "confirm",
    "find",
    "find_two",
    "count",
    "any_of",
    "has",
    "lacks",
    "mention",
    "ask_same",
    "ask_which",
)


def _with(*slots: str) -> AfterValidator:
    """Return a validator that requires all `slots` in each wording."""

    def checked(wordings: Wordings) -> Wordings:
        for slot in slots:
            if wrong := [text for text in wordings if f"{{{slot}}}" not in text]:
                raise ValueError(f"a wording needs {{{slot}}}: {wrong[0]!r}")
        return wordings

    return AfterValidator(checked)


def _regular_expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return pattern


def _with_one_group(pattern: str) -> str:
    if (groups := re.compile(_regular_expression(pattern or "()")).groups) != 1:
        raise ValueError(f"`pattern` needs one group, and has {groups}")
    return pattern


_Pattern = Annotated[str, AfterValidator(_with_one_group)]
_OfRow = Annotated[Wordings, _with("name")]
_OfValue = Annotated[Wordings, _with("value")]


class Part(Record):
    """Some items of a list: those after a label in it, such as "codes: ", those that contain one of `words`, or both.

    `ask` has ways to ask for these items, `ask_two` for those of {name} and {other}, and `ask_same` to ask whether they
    are the same. A cell is not asked about if an item contains one of `unclear`, but none of `words` outside of it.
    The items of a text are its sentences. `pattern` is a regular expression with one group. The text that it finds,
    such as a figure in a sentence, is the answer, and a list in this text becomes several items. A cell in which it
    finds nothing or several texts is not asked about. Each character of `splits` divides items further. If the cell of
    the column `instead` is empty, the items answer questions about that column. With `ages`, only the item for
    {age} is asked for. `same_row` are columns: if the cell of one is empty, and the item is the name of another
    row, the cell of that row answers. If `absent` has words, a question about a filled cell is unanswerable when
    the row has neither these nor `words`.
    """

    ask: _OfRow = ()
    ask_two: Annotated[Wordings, _with("name", "other")] = ()
    words: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    pattern: _Pattern = ""
    splits: str = ""
    label: str = ""
    instead: str = ""
    ask_same: Annotated[Wordings, _with("name", "other")] = ()
    ages: bool = False
    same_row: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not (self.words or self.label or self.pattern) or not (self.ask or self.instead):
            raise ValueError("a part needs `words`, `label` or `pattern`, and `ask` or `instead`")
        return self


class Column(Record):
    """A column of a table. All wordings are optional.

    label      what people call the column; `plural` is for several of its items, or for what a number counts
    also       other words for the label; half of the questions say one of them
    meaning    what the model is told about the column, besides its name; default: the label
    separator  what separates the items of a list
    unit       unit of a number, such as kg
    values     the values of a category or a flag, if they are few; the model sees them
    near       columns that people confuse with this one
    vocabulary  columns (of another table: "table.column") whose items people search for in this one
    pattern    a regular expression that finds what people search for in this column if it is prose, such as genes
    frame      a regular expression for what stands before each name that people search for in this column if it is
               prose, at most 120 characters before it, such as "treatment of[^.]*"; case is ignored
    words      words that people search for in this column; in a column of names, they also search for other words
    unsaid     nobody searches for an item that contains one of these texts
    asides     what people say before a {question} about a row whose cell has {value}
    ask        ways to ask for the cell of {name}; `ask_two` for the cells of {name} and {other}
    confirm    ways to ask whether {value} is in the cell of {name}
    find       ways to ask for the rows with {value}; `count` for their number; `any_of` for any three of them
    find_two   ways to ask for the rows with {value} and {and_other}, a phrase of another column's `has` or `lacks`
    then       maps another column, or "column.part", to ways to ask for it in the rows with {value}
    has        verb phrases for rows with {value}, such as "treat {value}"; `lacks` for rows without {value}
    parts      parts of a list, each under a name that you choose
    share      how many times as often as other columns people ask about this one; above 1, also longer cells of it
    mention    ways to ask for the one sentence of the cell of {name} that has {value}: a word of `mentioned`, a name of
               a row, or an item of a list
    ask_same   ways to ask whether {name} and {other} have the same cell
    ask_which  ways to ask which of {name} and {other} has {value}; {other} may be two names
    """

    kind: Kind
    label: str = Field(min_length=1)
    plural: str = ""
    also: tuple[str, ...] = ()
    meaning: str = ""
    separator: str = ""
    unit: str = ""
    values: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()
    pattern: _Pattern = ""
    frame: Annotated[str, AfterValidator(_regular_expression)] = ""
    words: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    asides: Annotated[Wordings, _with("value", "question")] = ()
    ask: _OfRow = ()
    ask_two: Annotated[Wordings, _with("name", "other")] = ()
    confirm: Annotated[Wordings, _with("name", "value")] = ()
    find: _OfValue = ()
    find_two: Annotated[Wordings, _with("value", "and_other")] = ()
    count: _OfValue = ()
    any_of: _OfValue = ()
    then: dict[str, _OfValue] = Field(default_factory=dict)
    has: _OfValue = ()
    lacks: _OfValue = ()
    parts: dict[str, Part] = Field(default_factory=dict)
    share: float = Field(1.0, gt=0)
    mention: Annotated[Wordings, _with("name", "value")] = ()
    mentioned: tuple[str, ...] = ()
    ask_same: Annotated[Wordings, _with("name", "other")] = ()
    ask_which: Annotated[Wordings, _with("name", "other", "value")] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "list" and not self.separator:
            raise ValueError("a list needs a separator")
        return self

    @property
    def counts(self) -> bool:
        """Whether the column is a number of things; `plural` names the things."""
        return self.kind == "number" and bool(self.plural)

    @property
    def has_vocabulary(self) -> bool:
        """Whether people search this column for items of `vocabulary`, or as prose for what `pattern` finds."""
        return bool(self.vocabulary or (self.pattern and self.kind == "text"))

    @property
    def labels(self) -> str:
        """What people call several items of the column."""
        return self.plural or self.label

    @property
    def cell_label(self) -> str:
        """What people call one cell: for a list the plural ("materials"), else the label ("colour")."""
        return self.labels if self.kind == "list" else self.label


class Claim(Record):
    """A yes-no question about {name} that words in the cells of `columns` decide.

    ask, ask_not  ways to ask it; and ways to ask the opposite
    about         words for {item}, by value of {item}; only sentences with one of these words decide
    yes, no       words in a cell that mean yes, or no; a cell with words of both decides nothing
    unclear       words with which a cell decides nothing
    ignored       longer words that contain one of the other words but mean something else
    silent        whether cells without any of the words mean no, provided that the first of `columns` is filled
    topic         words of which silent cells must contain one: what does not speak of food forbids none by silence. If
                  the claim is not silent, a question about a row without the words of the claim is unanswerable
    """

    columns: tuple[str, ...] = Field(min_length=1)
    ask: _OfRow = Field(min_length=1)
    ask_not: _OfRow = ()
    about: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    yes: tuple[str, ...] = Field(min_length=1)
    no: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    silent: bool = False
    topic: tuple[str, ...] = ()


class Search(Record):
    """Columns that people search together for a word, such as causes and exposures, and ways to `ask` for {value}.

    If `words` is empty, people search for the items and words of each of the columns.
    """

    columns: tuple[str, ...] = Field(min_length=2)
    words: tuple[str, ...] = ()
    ask: _OfValue = Field(min_length=1)


class Table(Record):
    """A table.

    name         the column that names a row
    other_names  maps the name of a row to names that no cell contains, such as a brand
    beside       words that may stand next to a name and leave its meaning as it is, such as a dosage form
    absent       names that people may ask about and the table may lack
    unknown      questions about {name} that no column answers
    claims       yes-no questions, each under a name that you choose
    searches     searches of several columns, each under a name that you choose
    asked        columns that people ask about, by type of question; default: all columns
    pairs        pairs of columns that people ask about together in this order, by type of question
    alike        people compare rows that share items of these lists; default: all lists
    """

    label: str = Field(min_length=1)
    plural: str = Field(min_length=1)
    name: str | None = None
    beside: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unknown: _OfRow = ()
    columns: dict[str, Column] = Field(min_length=1)
    claims: dict[str, Claim] = Field(default_factory=dict)
    searches: dict[str, Search] = Field(default_factory=dict)
    asked: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    pairs: dict[str, tuple[tuple[str, str], ...]] = Field(default_factory=dict)
    alike: tuple[str, ...] = ()
    other_names: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        names = chain(
            () if self.name is None else (self.name,),
            *((*column.near, *map(owner_of, column.then)) for column in self.columns.values()),
            *([part.instead] for column in self.columns.values() for part in column.parts.values() if part.instead),
            *(part.same_row for column in self.columns.values() for part in column.parts.values()),
            *(claim.columns for claim in self.claims.values()),
            *(search.columns for search in self.searches.values()),
            *(*self.asked.values(), *chain(*self.pairs.values()), self.alike),
        )
        if (missing := next((name for name in names if name not in self.columns), None)) is not None:
            raise ValueError(f"{missing!r} is not one of the columns")
        return self


class Link(Record):
    """A column that refers to rows of another table: a foreign key or, if `contains`, a text with names of rows.

    `ask` maps a column of the other table to ways to ask for it, in the rows that {name} refers to. A row that refers
    to more than `most` rows is not asked about. If the wordings speak of one row, `most` is 1, and only lists are asked
    about whose items all contain the name of this row.
    """

    source: tuple[str, str]
    target: tuple[str, str]
    label: str
    contains: bool = False
    most: int = Field(3, gt=0)
    ask: dict[str, _OfRow] = Field(default_factory=dict)


class Description(Record):
    """A database.

    lang            language of the questions
    database        its SQLite file (None: DATABASE_URL or database.path)
    said            everyday words that no cell contains, by the item or value that they mean
    unknown_tables  questions that no table answers, by topic
    """

    lang: Lang = "en"
    database: str | None = None
    unknown_tables: dict[str, Wordings] = Field(default_factory=dict)
    said: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    tables: dict[str, Table] = Field(min_length=1)
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _links_exist(self) -> Self:
        def is_missing(table: str, column: str) -> bool:
            return table not in self.tables or column not in self.tables[table].columns

        for link in self.links:
            for table, column in (link.source, link.target, *((link.target[0], column) for column in link.ask)):
                if is_missing(table, column):
                    raise ValueError(f"a link names {table}.{column}, which is not described")
        for name, described in self.tables.items():
            for source in (source for each in described.columns.values() for source in each.vocabulary):
                if is_missing(*column_of(source, name)):
                    raise ValueError(f"a vocabulary names {source}, which is not described")
        return self


def owner_of(name: str) -> str:
    """Return the column of a name "column.part" or "column"."""
    return name.partition(".")[0]


def column_of(name: str, table: str) -> tuple[str, str]:
    """Return (table, column) for a name "table.column", or for a name "column" in `table`."""
    owner, _, column = name.rpartition(".")
    return owner or table, column


def read_description(path: Path) -> Description:
    """Read NAME.toml. Raises ConfigError when the file is missing, is not TOML, or is not a valid description."""
    values = read_toml(path, f"make it: sql-agent init DB --out {path}")
    try:
        return Description.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            f"{path} does not describe a database: {first_problem(error)}", hint="see docs/any_database.md"
        ) from None


def fitted(description: Description, database: DatabaseRows) -> Description:
    """Return the part of `description` for the tables and columns of a database. A list that is prose becomes a text.

    A word in prose tells little: it may stand in a caution, or about something else, and prose that does not say a
    thing does not deny it. So people search prose only for what its `pattern` finds, or for names of the other tables'
    rows after its `frame`; they ask for its parts with a pattern, and for no claims.
    """
    columns = {name: table.columns for name, table in database.tables.items()}
    names = {f"{name}.{table.name}": name for name, table in description.tables.items() if name in columns}

    def of_table(name: str, table: Table) -> Table:
        def has(*names: str) -> bool:
            owners = (column_of(each, name) for each in names)
            return all(fold(column) in map(fold, columns.get(owner, ())) for owner, column in owners)

        others = tuple(other for other, of in names.items() if of != name and has(other))

        def of_column(key: str, column: Column) -> Column:
            update = {
                "near": tuple(filter(has, column.near)),
                "then": {other: ways for other, ways in column.then.items() if has(owner_of(other))},
                "vocabulary": tuple(filter(has, column.vocabulary)),
            }
            if column.kind == "list" and _is_prose(database.tables[name].cells(key), column.separator):
                parts = {key: part for key, part in column.parts.items() if part.pattern}
                sources = update["vocabulary"] or (others if column.frame else ())
                update |= {"kind": "text", "vocabulary": sources, "parts": parts, "lacks": ()}
                if not (sources or column.pattern):
                    empty = ("confirm", "find", "find_two", "count", "any_of", "has", "ask_which")
                    update |= {"then": {}, **dict.fromkeys(empty, ())}
            return column.model_copy(update=update)

        kept = {key: of_column(key, column) for key, column in table.columns.items() if has(key)}

        def are_as_described(columns: Sequence[str]) -> bool:
            return has(*columns) and all(kept[key].kind == table.columns[key].kind for key in columns)

        return table.model_copy(
            update={
                "columns": kept,
                "claims": {key: claim for key, claim in table.claims.items() if are_as_described(claim.columns)},
                "searches": {key: search for key, search in table.searches.items() if has(*search.columns)},
                "asked": {key: tuple(filter(has, names)) for key, names in table.asked.items()},
                "pairs": {
                    key: tuple(pair for pair in pairs if (are_as_described(pair) if key == "negation" else has(*pair)))
                    for key, pairs in table.pairs.items()
                },
                "alike": tuple(filter(has, table.alike)),
            }
        )

    tables = {name: of_table(name, table) for name, table in description.tables.items() if name in columns}
    links = tuple(
        link.model_copy(
            update={"ask": {c: ways for c, ways in link.ask.items() if c in tables[link.target[0]].columns}}
        )
        for link in description.links
        if all(table in tables and column in tables[table].columns for table, column in (link.source, link.target))
    )
    return description.model_copy(update={"tables": tables, "links": links})


def _is_prose(cells: Iterable[object], separator: str) -> bool:
    """Return whether texts are long, and more of them have several sentences than have a separator."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    sentences = sum(_STOP.search(text) is not None for text in texts)
    is_long = bool(texts) and median(map(len, texts)) >= _LEAST_PROSE
    return is_long and sentences > sum(separator in text for text in texts)


def plain(description: Description, ask: Mapping[str, Wordings]) -> Description:
    """Return the description with no wordings but those in `ask`, a map from kinds of columns to wordings."""

    def bare(column: Column) -> Column:
        kept = {key: getattr(column, key) for key in ("kind", "label", "plural", "separator", "unit", "values")}
        labels = {"label": column.label, "labels": column.labels}
        ways = ask.get(column.kind, ()) if column.kind != "id" else ()
        return Column(**kept, ask=tuple(filled(way, **labels) for way in ways))

    def bare_table(table: Table) -> Table:
        columns = {name: bare(column) for name, column in table.columns.items()}
        kept = {key: getattr(table, key) for key in ("label", "plural", "name", "asked", "pairs", "alike")}
        return Table(**kept, columns=columns)

    tables = {name: bare_table(table) for name, table in description.tables.items()}
    links = tuple(link.model_copy(update={"ask": {}}) for link in description.links)
    return description.model_copy(update={"tables": tables, "links": links, "said": {}, "unknown_tables": {}})


def as_toml(description: Description) -> str:
    """Return the text of NAME.toml, which `read_description` reads."""
    values = description.model_dump(exclude_defaults=True)
    links = values.pop("links", ())
    lines = [_HEAD, *_lines({"lang": description.lang, **values})]
    for link in links:
        lines += ["", "[[links]]", *_lines(link, "links")]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield the lines of the TOML table `path`: its values, then its nested tables."""
    nested = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    yield from (f"{_key(key)} = {_value(value)}" for key, value in values.items() if key not in nested)
    for key, table in nested.items():
        below = f"{path}.{_key(key)}" if path else _key(key)
        if not all(isinstance(value, Mapping) for value in table.values()):
            yield from ([f"[{below}]"] if below.count(".") != 1 else ["", f"[{below}]"])
        yield from _lines(table, below)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: object) -> str:
    """Return a text, a truth value or a list of texts as TOML, which writes these values like JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
