"""Find where in a database a searched text is: names of rows that are like the text, and columns that contain it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from sql_agent.database.cell_texts import CellTexts, longest_parts
from sql_agent.database.conditions import SearchedText
from sql_agent.database.hint_statements import Place
from sql_agent.database.name_index import Name, NameIndex, comparable
from sql_agent.database.schema import fold
from sql_agent.database.source import Opened

MAX_CHARS_SEARCHED = 40  # a longer text is a whole question, which no cell contains


class TextPlaces:
    def __init__(self, opened: Opened, names: NameIndex, texts: CellTexts) -> None:
        self._schema = schema = opened.schema
        self._namings = {schema.spelled(table): naming for table, naming in opened.names.items()}
        name_columns = {table: fold(naming.column) for table, naming in self._namings.items()}
        self._name_columns = {
            table: next((column for column in columns if fold(column) == name_columns.get(table)), None)
            for table, columns in schema.tables
        }
        self._names = names
        self._texts = texts

    def _is_name(self, text: SearchedText) -> bool:
        """Return whether the statement compares the text with a name column."""
        return text.column == fold(self._name_columns.get(text.table or "") or "")

    def _places(self, text: SearchedText, tree: exp.Query) -> list[Place]:
        """Return the places of the text, and of names that are similar to the text, the most probable place first."""
        found = self._names.find(text.text)
        meant = [name for name in (*found.exact, *found.aliases) if not is_at(name, text) or name.text != text.text]
        selected = {fold(output.unalias().name) for output in tree.selects}
        columns = self._texts.columns_with(text.text) if 1 < len(text.text) <= MAX_CHARS_SEARCHED else []
        in_cells = [Place(*column, text.text, True) for column in columns if column[1] != self._name_columns[column[0]]]
        in_cells.sort(key=lambda each: (each.table != text.table, fold(each.column) not in {text.column, *selected}))
        first = [place for place in in_cells if place.table == text.table and fold(place.column) in selected]
        if own := [name for name in meant if is_at(name, text)]:
            return [*whole(own[:1], text), *first, *whole(own[1:], text)]
        part = comparable(text.text)
        inside = [name for name in found.longer if part in comparable(name.text)] if not meant else []
        named = [Place(name.table, name.column, text.text, is_part=True) for name in inside]
        similar = [name for name in (*found.longer, *found.near, *found.abbreviated) if name not in inside]
        by_alias = list(self._cells_with([name for name in found.aliases if name.table != text.table], text))
        if not self._is_name(text):
            beside = [place for place in in_cells if place.table == text.table]
            first = beside if beside and not meant else [*self._parts(text, meant, similar), *beside]
            first += by_alias
        others = sorted((*named, *in_cells, *by_alias), key=lambda place: place.table != text.table)
        return list(dict.fromkeys([*first, *whole(meant, text), *others, *whole(similar, text)]))

    def _parts(self, text: SearchedText, meant: Sequence[Name], similar: Sequence[Name]) -> Iterator[Place]:
        """Yield places in the searched column for the names `meant`, or without such names, for parts of the text."""
        for (table, column), cells in self._searched_cells(text):
            yield from (Place(table, column, name.text, is_part=True) for name in meant)
            for part in longest_parts(text.text, cells) if not meant else ():
                # A part must have half of the text's length if there are other similar names, else a quarter.
                is_beside_names = any(comparable(name.text) not in comparable(part) for name in similar)
                if len(part) * (2 if is_beside_names else 4) >= len(text.text):
                    yield Place(table, column, part, is_part=True)

    def _cells_with(self, names: Sequence[Name], text: SearchedText) -> Iterator[Place]:
        """Yield the columns of the searched table that contain one of `names`, if the searched column does not."""
        for name in names:
            columns = [column for column in self._texts.columns_with(name.text) if column[0] == text.table]
            places = [Place(*column, name.text, is_part=True) for column in columns]
            if not any(is_at(place, text) for place in places):
                yield from (place for place in places if place.column != self._name_columns[place.table])

    def _searched_cells(self, text: SearchedText) -> list[tuple[tuple[str, str], str]]:
        """Return the (table, column) that is searched for `text`, with its cells; [] if it has no texts."""
        return [(at, cells) for at, cells in self._texts.columns.items() if is_at(Place(*at, ""), text)]

    def _longest_parts(self, text: SearchedText) -> list[Place]:
        """Return the places of the longest parts of the text in its table, the searched column first; [] for a name."""
        if self._is_name(text):
            return []
        found = [
            ((len(part), fold(column) == text.column, cells.count(part.lower())), Place(table, column, part, True))
            for (table, column), cells in self._texts.columns.items()
            if table == text.table and column != self._name_columns[table]
            for part in longest_parts(text.text, cells)
        ]
        longest = max((rank[0] for rank, _ in found), default=0)
        return [place for rank, place in sorted(found, reverse=True) if rank[0] == longest]


def whole(names: Iterable[Name], text: SearchedText) -> list[Place]:
    """Return each of `names` as a `Place`, those in the searched column first."""
    return [Place(n.table, n.column, n.text) for n in sorted(names, key=lambda name: not is_at(name, text))]


def is_at(place: Name | Place, text: SearchedText) -> bool:
    return (place.table, fold(place.column)) == (text.table, text.column)
