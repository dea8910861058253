"""A whole medical database in memory, with the look-ups that making questions needs."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from sql_agent.database import Source
from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import fold, quoted
from sql_agent.database.source import Connection, open_source
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import Lang, QueryLimits
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.sample import SEPARATORS
from sql_agent.tasks.medical.tables import NAME_COLUMNS, SCHEMA

# Names with these would break SQL patterns, or the marks that separate facts in an answer.
_AWKWARD = re.compile(r"[%_;；:：,，、\"“”\\\n\t]")
# What separates items in one of the languages, and so cannot stand inside one.
_BREAKS = re.compile(r"[;；\n]")
# What separates the items of any text: of a list in one of the languages, and of a sentence.
ITEM_ENDS = re.compile(r"[;；,，、.。:：\n]")
_CHINESE = re.compile(r"[一-鿿]")
# How a cell begins that leaves what it would say to another text: 参见氢氯噻嗪。
_ELSEWHERE = {
    "en": re.compile(r"(?:see|refer to|same as|as for) ", re.IGNORECASE),
    "zh": re.compile(r"[请详]?(?:参[见照考阅]|见(?!光))|同[^，。；、]{2,10}。$"),
}
_MAX_NAME = {"en": 40, "zh": 20}
_MAX_ROWS = 10_000_000
_PATIENCE_S = 60.0
# Where one column ends and the next begins; in no text of a database.
_WALL = "\x00"

EntityKey = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Entity:
    """One row. `askable`: its name stands in one row only and fits into a question and an answer."""

    table: str
    row_id: int
    name: str
    values: Mapping[str, str | None]
    askable: bool

    @property
    def key(self) -> EntityKey:
        return self.table, self.name


class Catalog:
    """All rows of both tables. `lang` is the language of their names unless it is given; `dialect` that of the SQL."""

    def __init__(
        self, tables: Mapping[str, list[dict[str, object]]], lang: Lang | None = None, dialect: Dialect = SQLITE
    ) -> None:
        self.dialect = dialect
        self.lang: Lang = lang or _language(tables)
        self.rows: dict[str, tuple[Entity, ...]] = {
            table: tuple(_entities(table, rows, self.lang)) for table, rows in tables.items()
        }
        self.columns = {table: tuple(rows[0]) for table, rows in tables.items()}
        self._by_name = {entity.key: entity for rows in self.rows.values() for entity in rows}
        self._haystacks: dict[tuple[str, str], tuple[str, list[int]]] = {}
        self._items: dict[tuple[str, int, str], list[str]] = {}
        self._starts = {table: _name_starts(rows) for table, rows in self.rows.items()}

    def askable(self, table: str) -> list[Entity]:
        """Return the rows that a question can name, in the order of the table."""
        return [entity for entity in self.rows[table] if entity.askable]

    def find(self, table: str, name: str) -> Entity | None:
        """Return a row with exactly this name."""
        return self._by_name.get((table, name))

    def items(self, entity: Entity, column: str) -> list[str]:
        """Return the distinct items of a field without their full stop, each a substring of the field; [] when it says
        nothing itself."""
        key = entity.table, entity.row_id, column
        if key not in self._items:
            self._items[key] = _items(entity.values.get(column) or "", self.lang)
        return self._items[key]

    def rows_with(self, table: str, column: str, text: str) -> list[Entity]:
        """Return the rows that `column LIKE '%text%'` selects, in the order of the table; `text` holds no wildcard."""
        haystack, starts = self._haystack(table, column)
        needle, found, position = fold(text), [], 0
        while (position := haystack.find(needle, position)) >= 0:
            index = bisect.bisect_right(starts, position) - 1
            found.append(self.rows[table][index])
            position = starts[index + 1] if index + 1 < len(starts) else len(haystack)
        return found

    def names_in(self, table: str, text: str) -> Iterator[tuple[Entity, int]]:
        """Yield every row of `table` whose name occurs in `text` as LIKE compares, and where; these may overlap."""
        folded = fold(text)
        starts = self._starts[table]
        for position in range(len(folded)):
            # A name of one character is filed under that character, every other under its first two.
            for start in {folded[position], folded[position : position + 2]}:
                for name, entity in starts.get(start, ()):
                    if folded.startswith(name, position):
                        yield entity, position

    def _haystack(self, table: str, column: str) -> tuple[str, list[int]]:
        """Return one text of the whole column, folded, and where each row starts in it: one search finds all rows."""
        if (table, column) not in self._haystacks:
            starts, pieces, length = [], [], 0
            for entity in self.rows[table]:
                piece = fold(entity.values.get(column) or "") + _WALL
                starts.append(length)
                pieces.append(piece)
                length += len(piece)
            self._haystacks[table, column] = "".join(pieces), starts
        return self._haystacks[table, column]


def refers_elsewhere(text: str, lang: Lang) -> bool:
    """Return whether a cell only says where else to look, so that nobody can tell from it what holds."""
    return bool(_ELSEWHERE[lang].match(text.strip()))


def holds_item(text: str, name: str) -> bool:
    """Return whether `text` holds `name` as a whole item: alone between two separators, compared as LIKE compares.

    Chinese has no spaces between words, and an English name can be the end of a longer one ("hypertension" in
    "pulmonary hypertension"), so nothing less shows that the text means this name.
    """
    return fold(name) in (item.strip() for item in ITEM_ENDS.split(fold(text)))


def read_catalog(source: Source, lang: Lang | None = None) -> Catalog:
    """Read the database at `source`. Raises DatabaseFileError when it is not a filled medical database."""
    opened = open_source(source, SCHEMA, QueryLimits())
    try:
        with closing(opened.engine.connect(opened.schema, opened.limits)) as connection:
            tables = {table: _read(connection, table, columns) for table, columns in opened.schema.tables}
    except QueryError as error:
        raise DatabaseFileError(f"{source} cannot be read: {error.message}", hint="check the database") from error
    for table, rows in tables.items():
        ids = {row["id"] for row in rows}
        if len(ids) < len(rows) or not all(isinstance(row_id, int) for row_id in ids):
            raise DatabaseFileError(f"{source}: {table}.id is not a different whole number in each row")
    return Catalog(tables, lang, opened.engine.dialect)


def _read(connection: Connection, table: str, columns: Sequence[str]) -> list[dict[str, object]]:
    names = ", ".join(map(quoted, columns))
    rows = connection.read(f"SELECT {names} FROM {table} ORDER BY id LIMIT {_MAX_ROWS}", _PATIENCE_S)
    return [dict(zip(map(fold, columns), row, strict=True)) for row in rows]


def _entities(table: str, rows: list[dict[str, object]], lang: Lang) -> Iterator[Entity]:
    name_column = NAME_COLUMNS[table]
    counts = Counter(fold(str(row[name_column])) for row in rows)
    for row in rows:
        name = str(row[name_column])
        askable = (
            row[name_column] is not None
            and counts[fold(name)] == 1
            and name == name.strip()
            and 2 <= len(name) <= _MAX_NAME[lang]
            and not _AWKWARD.search(name)
        )
        values = {column: value for column, value in row.items() if isinstance(value, str)}
        yield Entity(table, int(str(row["id"])), name, values, askable)


def _items(text: str, lang: Lang) -> list[str]:
    if refers_elsewhere(text, lang):
        return []
    parts = text.split(SEPARATORS[lang].strip())
    items = list(dict.fromkeys(part.strip().rstrip("。.").strip() for part in parts))
    unclear = any(not item or item.lower() in wording(lang).meaningless or _BREAKS.search(item) for item in items)
    return [] if unclear else items


def _name_starts(rows: tuple[Entity, ...]) -> dict[str, list[tuple[str, Entity]]]:
    starts: dict[str, list[tuple[str, Entity]]] = {}
    for entity in rows:
        name = fold(entity.name)
        if name:
            starts.setdefault(name[:2], []).append((name, entity))
    return starts


def _language(tables: Mapping[str, list[dict[str, object]]]) -> Lang:
    names = [str(row[NAME_COLUMNS[table]]) for table, rows in tables.items() for row in rows]
    return "zh" if 2 * sum(bool(_CHINESE.search(name)) for name in names) > len(names) else "en"
