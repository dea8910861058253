"""Write a hint for an empty or incomplete query result: unmet conditions, similar names, other columns with the text.

A hint shows names of rows, tables and columns, and parts of the statement, but never the content of another cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sqlglot import exp

from sql_agent.database.conditions import (
    Condition,
    SearchedText,
    conditions,
    listed_texts,
    longest_part,
    only_table,
    where_of,
)
from sql_agent.database.dialect import Dialect
from sql_agent.database.name_index import Found, Name, NameIndex, comparable
from sql_agent.database.schema import MAX_HINT_CHARS, Naming, Schema, fold, quoted, shortened
from sql_agent.errors import QueryError
from sql_agent.schemas import Cell, QueryAnswer

# Counts and not time limit the work, so that a statement gets the same hint on a busy machine.
MAX_CONDITIONS = 4
MAX_TEXTS = 2
MAX_COUNT = 100  # at most so many rows are counted for a condition
MAX_ROWS_SEARCHED = 3_000  # of each table
MAX_CELL_CHARS = 300  # searched in each cell
MAX_CHARS_SEARCHED = 40  # a longer text is a whole question, which no cell contains
FEW_ROWS = 3  # a result of at most so many rows gets a hint about empty columns
_COLUMNS_SHOWN = 3
_FILLED_SHOWN = 10
_NAMES_SHOWN = 3
_CONDITION_CHARS = 50
_NAME_CHARS = 60  # reserved for the part of a hint that says which table contains a name

_LIST_OF_TEXTS = re.compile(r"\bIN\s*\(\s*['\"]", re.IGNORECASE)

_Place = tuple[str | None, str | None]  # a table and a column in lower case


def is_wanted(sql: str, answer: QueryAnswer) -> bool:
    """Return whether a result needs a hint: no rows, up to 3 rows with an empty column, or a list of texts in IN."""
    lacks = not answer.records or _may_count_nothing(answer) or _has_empty_columns(answer)
    return lacks or _LIST_OF_TEXTS.search(sql) is not None


class Hints:
    """Writes hints for one database. `read` runs a SELECT under a short time limit and may raise QueryError."""

    def __init__(
        self,
        schema: Schema,
        namings: Mapping[str, Naming],
        names: NameIndex,
        read: Callable[[str], Sequence[tuple[object, ...]]],
        dialect: Dialect,
    ) -> None:
        self._schema = schema
        self._dialect = dialect
        self._namings = {schema.spelled(table) or table: naming for table, naming in namings.items()}
        self._names = names
        self._read = read

    def hint(self, tree: exp.Query, answer: QueryAnswer) -> str | None:
        """Return a hint for the answer to `tree`, at most `MAX_HINT_CHARS` characters; None if no hint applies."""
        if not answer.records or (_may_count_nothing(answer) and not _selects_a_column(tree)):
            return _fitted(self._after_nothing(tree))
        if missing := _fitted(self._about_missing_names(tree)):
            return missing
        return _fitted(self._after_empty_columns(tree, answer)) if _has_empty_columns(answer) else None

    def _after_nothing(self, tree: exp.Query) -> Iterable[str]:
        """Yield the parts of a hint for a result without rows, the most helpful first."""
        parts = conditions(tree, self._schema, self._dialect)[:MAX_CONDITIONS]
        alone = len(parts) == 1 and only_table(tree, self._schema) is not None
        counts = {part: 0 if alone else self._count(part) for part in parts}
        if not alone:
            yield from (_count_shown(part, 0) for part, count in counts.items() if count == 0)
        texts = dict.fromkeys(text for part, count in counts.items() if not count for text in part.texts)
        for text in list(texts)[:MAX_TEXTS]:
            yield from self._about(text)
            yield from self._about_selected(tree, text)
        yield from (_count_shown(part, count) for part, count in counts.items() if count)

    def _count(self, part: Condition) -> int | None:
        """Return how many rows meet the condition on its own, at most `MAX_COUNT`; None if the count is unknown."""
        if part.table is None:
            return None
        rows = f"SELECT 1 FROM {quoted(part.table)} WHERE {part.sql} LIMIT {MAX_COUNT}"
        found = self._try(f"SELECT count(*) FROM ({rows}) AS found")
        return int(str(found[0][0])) if found is not None else None

    def _try(self, sql: str) -> Sequence[tuple[object, ...]] | None:
        """Return the rows of a statement; None if the statement is too slow or the engine refuses it."""
        try:
            return self._read(sql)
        except QueryError:
            return None

    def _about(self, searched: SearchedText) -> Iterable[str]:
        """Yield the parts of a hint about a text that the searched column does not contain."""
        if (spelling := self._other_case(searched)) is not None:
            yield spelling
            return
        found = self._names.find(searched.text)
        named = about_names(searched, found)
        # A text similar to a name was meant as a name. A text that is only a part of names may occur in other columns.
        columns = [] if found.exact or found.aliases or found.near else self._columns_with(searched)
        # Next to similar names, a part helps only with half of the text's length; otherwise a quarter is enough.
        least = len(searched.text) / (2 if named else 4)
        part = None if columns or found.exact or found.aliases else self._part_in_column(searched, least)
        if part is not None:
            yield part
        yield from named
        if columns:
            yield f"'{searched.text}' is in {'; '.join(columns)}"
        elif not named and part is None and len(searched.text) <= _CONDITION_CHARS:
            yield f"nothing is like '{searched.text}'; LIKE '%part%' finds parts"

    def _other_case(self, searched: SearchedText) -> str | None:
        """Return a hint with the column's spelling of the text if only upper and lower case differ, else None."""
        if searched.table is None or searched.column is None or self._is_name_column(searched):
            return None
        column, text = quoted(searched.column), self._dialect.text_literal(searched.text)
        table = quoted(searched.table)
        rows = self._try(f"SELECT {column} FROM {table} WHERE lower({column}) = lower({text}) LIMIT 1")
        cell = rows[0][0] if rows else None
        differs = isinstance(cell, str) and cell != searched.text and fold(cell) == fold(searched.text)
        return f"it is written {searched.column} = {self._dialect.text_literal(str(cell))}" if differs else None

    def _part_in_column(self, searched: SearchedText, least: float) -> str | None:
        """Return a hint with a part of the text, `least` characters or more, that its column contains, or None."""
        if searched.table is None or searched.column is None or self._is_name_column(searched):
            return None
        column = quoted(searched.column)
        cells = f"SELECT substr({column}, 1, {MAX_CELL_CHARS}) FROM {quoted(searched.table)} WHERE {column} <> ''"
        rows = self._try(f"{cells} LIMIT {MAX_ROWS_SEARCHED}") or ()
        part = longest_part(searched.text, [cell for (cell,) in rows if isinstance(cell, str)])
        if part is None or len(part) < least:
            return None
        like = f"LIKE {self._dialect.text_literal(f'%{part}%')}"
        count = self._count(Condition(searched.table, f"{column} {like}", ()))
        return f"{searched.column} {like} finds {_rows_shown(count)}" if count else None

    def _is_name_column(self, searched: SearchedText) -> bool:
        naming = self._namings.get(searched.table or "")
        return naming is not None and fold(naming.column) == searched.column

    def _about_selected(self, tree: exp.Query, searched: SearchedText) -> Iterable[str]:
        """If the named row is in another table, without the selected columns, yield that row's non-empty columns."""
        name = next(iter(self._names.exact(searched.text)), None)
        if name is None or not self._is_name_column(searched) or only_table(tree, self._schema) in {None, name.table}:
            return
        selected = [output.unalias().name for output in tree.selects if isinstance(output.unalias(), exp.Column)]
        known = {fold(column) for column in self._schema.columns[name.table]} | {searched.column}
        lacking = [column for column in selected if fold(column) not in known]
        is_row = f"WHERE {quoted(name.column)} = {self._dialect.text_literal(name.text)}"
        filled = self._filled_columns(name.table, is_row, {"id", fold(name.column)}) if lacking else None
        if filled:
            others = f"{name.table} has no {', '.join(lacking)}, but {', '.join(filled[:_FILLED_SHOWN])}"
            yield shortened(others, MAX_HINT_CHARS - _NAME_CHARS)

    def _about_missing_names(self, tree: exp.Query) -> Iterable[str]:
        """Yield the parts of a hint about texts in a list such as `name IN ('a', 'b')` that are the name of no row."""
        texts = [text for text in listed_texts(tree, self._schema) if self._may_be_missing(text)]
        missing = [text for text in texts[:MAX_CONDITIONS] if self._count(_equals(text, self._dialect)) == 0]
        for text in missing[:MAX_TEXTS]:
            for number, part in enumerate(self._about(text)):
                is_named = number > 0 or f"'{text.text}'" in part
                yield part if is_named else f"'{text.text}' finds nothing: {part}"

    def _may_be_missing(self, searched: SearchedText) -> bool:
        """Return whether the text is searched in a column of row names, and the name index lacks this exact spelling.

        The engine may still find the name: the index is limited in size, and MySQL ignores upper and lower case.
        """
        if not self._is_name_column(searched) or not searched.text.strip():
            return False
        here = (searched.table, searched.column)
        return all(_place(name) != here or name.text != searched.text for name in self._names.exact(searched.text))

    def _columns_with(self, searched: SearchedText) -> list[str]:
        """Return `table: columns` for tables with the text outside of row names; the searched table comes first."""
        if not 1 < len(searched.text) <= MAX_CHARS_SEARCHED:
            return []
        like = self._dialect.text_literal(f"%{searched.text}%")
        found = []
        for table, columns in self._schema.tables:
            naming = self._namings.get(table)
            others = [column for column in columns if naming is None or fold(column) != fold(naming.column)]
            tests = ", ".join(f"max({quoted(column)} LIKE {like})" for column in others)
            rows = f"SELECT * FROM {quoted(table)} LIMIT {MAX_ROWS_SEARCHED}"
            found_rows = self._try(f"SELECT {tests} FROM ({rows}) AS searched")
            flags = found_rows[0] if found_rows else [None] * len(others)
            if shown := [column for column, flag in zip(others, flags, strict=True) if flag][:_COLUMNS_SHOWN]:
                found.append(f"{table}: {', '.join(shown)}")
        return sorted(found, key=lambda columns: not columns.startswith(f"{searched.table}:"))

    def _after_empty_columns(self, tree: exp.Query, answer: QueryAnswer) -> Iterable[str]:
        """Yield the selected columns that are empty in all rows of the result, and other columns that are not."""
        table = only_table(tree, self._schema)
        if table is None or any(output.is_star for output in tree.selects):
            return
        columns = [output.unalias() for output in tree.selects]
        empty = [columns[place].name for place in _empty_columns(answer) if isinstance(columns[place], exp.Column)]
        if not empty:
            return
        naming = self._namings.get(table)
        known = {fold(column.name) for column in columns} | ({fold(naming.column)} if naming else set()) | {"id"}
        filled = self._filled_columns(table, where_of(tree, self._dialect), known)
        if filled is not None:
            yield f"empty here: {', '.join(empty)}"
            yield f"filled: {', '.join(filled[:_FILLED_SHOWN])}" if filled else "so are the other columns"

    def _filled_columns(self, table: str, where: str, known: Collection[str]) -> list[str] | None:
        """Return the columns, except `known`, that are non-empty in one of the first rows; None if the query fails."""
        others = [column for column in self._schema.columns[table] if fold(column) not in known]
        filled = ", ".join(f"max(length(trim({quoted(column)}))) > 0" for column in others)
        rows = f"SELECT * FROM {quoted(table)} {where} LIMIT {FEW_ROWS}"
        flags = self._try(f"SELECT {filled} FROM ({rows}) AS found") if others else [()]
        return None if flags is None else [column for column, flag in zip(others, flags[0], strict=True) if flag]


def about_names(searched: SearchedText, found: Found) -> list[str]:
    """Return the parts of a hint about the similar names that the index found for a searched text."""
    here = (searched.table, searched.column)
    parts = []
    for name in found.exact:
        if _place(name) != here:
            parts.append(f"'{searched.text}' is a {name.table}.{name.column}")
        elif name.text != searched.text:
            parts.append(f"it is written {name.column} = '{name.text}'")
    if found.aliases:
        parts.append(f"'{searched.text}' is another name of {_listed(found.aliases, here)}")
    if found.longer and not found.exact:
        longer = _searched_first(found.longer, here)
        part = comparable(searched.text)
        with_part = [name for name in longer if _place(name) == _place(longer[0]) and part in comparable(name.text)]
        if with_part:
            like = f"{_column(longer[0], here)} LIKE '%{searched.text}%' finds"
            parts.append(f"{like} {len(with_part)}: {_texts(with_part)}")
        else:
            parts.append(f"nearest {_listed(longer, here)}")
    if found.near and not found.exact:
        parts.append(f"nearest {_listed(found.near, here)}")
    if found.abbreviated:
        parts.append(f"perhaps short for {_listed(found.abbreviated, here)}")
    return parts


def _place(name: Name) -> _Place:
    return name.table, fold(name.column)


def _column(name: Name, here: _Place) -> str:
    return name.column if _place(name) == here else f"{name.table}.{name.column}"


def _searched_first(names: Sequence[Name], here: _Place) -> list[Name]:
    return sorted(names, key=lambda name: _place(name) != here)


def _listed(names: Sequence[Name], here: _Place) -> str:
    """Return the first names of one column, preferably of the searched column: `med_name 'A', 'B'`."""
    first, *_ = ordered = _searched_first(names, here)
    return f"{_column(first, here)} {_texts([name for name in ordered if _place(name) == _place(first)])}"


def _texts(names: Sequence[Name]) -> str:
    return ", ".join(f"'{name.text}'" for name in names[:_NAMES_SHOWN])


def _selects_a_column(tree: exp.Query) -> bool:
    """Return whether a SELECT outputs a plain column or `*`: then a single record is a table row, not an aggregate."""
    return any(output.is_star or isinstance(output.unalias(), exp.Column) for output in tree.selects)


def _count_shown(part: Condition, count: int) -> str:
    shown = part.sql if len(part.sql) <= _CONDITION_CHARS else part.sql[: _CONDITION_CHARS - 1] + "…"
    return f"{shown} alone finds {_rows_shown(count)}"


def _rows_shown(count: int) -> str:
    return "nothing" if not count else "1 row" if count == 1 else f"{count}{'+' if count == MAX_COUNT else ''} rows"


def _equals(searched: SearchedText, dialect: Dialect) -> Condition:
    sql = f"{quoted(searched.column or '')} = {dialect.text_literal(searched.text)}"
    return Condition(searched.table, sql, (searched,))


def _fitted(parts: Iterable[str]) -> str | None:
    """Join the parts in order, skipping any that would exceed `MAX_HINT_CHARS`; None if no part is left."""
    hint = ""
    for part in parts:
        longer = f"{hint}; {part}" if hint else part
        if len(longer) <= MAX_HINT_CHARS:
            hint = longer
    return hint or None


def _may_count_nothing(answer: QueryAnswer) -> bool:
    """Return whether an answer looks like an aggregate over no rows: a single row of NULLs and zeros."""
    return len(answer.records) == 1 and all(cell in {None, 0} for cell in answer.records[0])


def _has_empty_columns(answer: QueryAnswer) -> bool:
    return 0 < len(answer.records) <= FEW_ROWS and bool(_empty_columns(answer))


def _empty_columns(answer: QueryAnswer) -> list[int]:
    """Return the positions of the output columns that are empty in every row."""
    return [place for place, cells in enumerate(zip(*answer.records, strict=True)) if all(map(_is_empty, cells))]


def _is_empty(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
