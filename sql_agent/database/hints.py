"""Write a hint for an empty or incomplete query result: up to two statements to run instead, which find rows.

The statements are variants of the model's own: a name as the database spells it, another column or table that has the
text, fewer conditions, a filled column. A hint shows names of rows, tables and columns, and parts of the statement, but
never the content of another cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from sqlglot import exp

from sql_agent.database.cell_texts import CellTexts
from sql_agent.database.conditions import (
    Condition,
    SearchedText,
    conditions,
    edited,
    listed_texts,
    longest_part_in,
    only_table,
    where_of,
    without_aliases,
)
from sql_agent.database.dialect import Dialect
from sql_agent.database.name_index import Name, NameIndex, comparable
from sql_agent.database.schema import MAX_HINT_CHARS, Naming, Schema, fold, quoted
from sql_agent.errors import QueryError
from sql_agent.schemas import Cell, QueryAnswer

# Counts and not time limit the work, so that a statement gets the same hint on a busy machine.
MAX_CONDITIONS = 4
MAX_TEXTS = 2
MAX_LINES = 2
MAX_TRIED = 8  # statements that are run for a hint
MAX_CHARS_SEARCHED = 40  # a longer text is a whole question, which no cell contains
FEW_ROWS = 3  # a result of at most so many rows gets a hint about empty columns
_READ_INSTEAD = 2  # filled columns that are read in place of an empty one
_TEXT_CHARS = 50  # a longer text is not repeated in a hint
_TRY = "try: "

_LIST_OF_TEXTS = re.compile(r"\bIN\s*\(\s*['\"]", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d]\w*")


class _Place(NamedTuple):
    """Where a text is in the database: `text` is a whole cell of a column, or a part of cells."""

    table: str
    column: str
    text: str
    is_part: bool = False


def is_wanted(sql: str, answer: QueryAnswer) -> bool:
    """Return whether a result needs a hint: no rows, up to 3 rows with an empty column, or a list of texts in IN."""
    lacks = not answer.records or _may_count_nothing(answer) or _has_empty_columns(answer)
    return lacks or _LIST_OF_TEXTS.search(sql) is not None


def suggested_statements(hint: str | None) -> tuple[str, ...]:
    """Return the statements that a hint tells the model to try, the best first."""
    lines = (hint or "").split("\n")
    return tuple(line.removeprefix(_TRY) for line in lines if line.startswith(_TRY))


class Hints:
    """Writes hints for one database. `read` runs a SELECT under a short time limit and may raise QueryError."""

    def __init__(
        self,
        schema: Schema,
        namings: Mapping[str, Naming],
        read: Callable[[str], Sequence[tuple[object, ...]]],
        dialect: Dialect,
        *,
        names: NameIndex,
        texts: CellTexts,
    ) -> None:
        self._schema = schema
        self._dialect = dialect
        name_columns = {schema.spelled(table) or table: fold(naming.column) for table, naming in namings.items()}
        self._name_columns = {
            table: next((column for column in columns if fold(column) == name_columns.get(table)), None)
            for table, columns in schema.tables
        }
        self._names = names
        self._texts = texts
        self._read = read

    def hint(self, tree: exp.Query, answer: QueryAnswer) -> str | None:
        """Return a hint for the answer to `tree`, at most `MAX_HINT_CHARS` characters; None if no hint applies.

        A hint has one or two lines. A line is `try: ` and a statement that finds rows, or a remark.
        """
        if not answer.records or (_may_count_nothing(answer) and not _selects_a_column(tree)):
            return self._fitted(tree, self._after_nothing(tree))
        if missing := self._fitted(tree, self._after_missing_names(tree)):
            return missing
        return self._fitted(tree, self._after_empty_columns(tree, answer)) if _has_empty_columns(answer) else None

    def _fitted(self, tree: exp.Query, found: Iterable[exp.Query | str]) -> str | None:
        """Return the remarks and the statements that find rows, one a line; None without any."""
        lines: list[str] = []
        tried = [tree.sql(self._dialect.name)]
        for remark_or_statement in found:
            line = remark_or_statement
            if isinstance(line, exp.Query):
                sql = line.sql(self._dialect.name)
                fits = len(_TRY) + len(sql) <= MAX_HINT_CHARS and "\n" not in sql
                if sql in tried or not fits or len(tried) > MAX_TRIED:
                    continue
                tried.append(sql)
                if not self._finds_rows(line):
                    continue
                line = f"{_TRY}{sql}"
            if len("\n".join([*lines, line])) <= MAX_HINT_CHARS:
                lines.append(line)
            if len(lines) == MAX_LINES:
                break
        return "\n".join(lines) or None

    def _finds_rows(self, tree: exp.Query) -> bool:
        rows = self._try(tree.limit(1).sql(self._dialect.name))
        return bool(rows) and (_selects_a_column(tree) or any(cell not in {None, 0} for cell in rows[0]))

    def _try(self, sql: str) -> Sequence[tuple[object, ...]]:
        """Return the rows of a statement; none if the statement is too slow or the engine refuses it."""
        try:
            return self._read(sql)
        except QueryError:
            return ()

    def _after_nothing(self, tree: exp.Query) -> Iterator[exp.Query | str]:
        """Yield statements in place of one without rows, the most helpful first, and texts that are nowhere."""
        parts = conditions(tree, self._schema, self._dialect)[:MAX_CONDITIONS]
        is_alone = len(parts) == 1 and only_table(tree, self._schema) is not None
        failing = [part for part in parts if is_alone or not self._is_met(part)]
        yield from self._with_right_names(tree)
        texts = list(dict.fromkeys(text for part in failing for text in part.texts))[:MAX_TEXTS]
        places = [(text, place) for text in texts for place in self._places(text)]
        is_name_lost = any(self._is_name_column(text) for text in texts)
        here = [(text, place) for text, place in places if is_name_lost or place.table == text.table]
        yield from (self._searched_at(tree, text, place, parts) for text, place in here)
        if not is_name_lost:
            yield from self._without(tree, failing)
        if not is_alone:
            yield from (self._one_table(tree, place.table, self._test(place), place) for _, place in here)
        yield from (self._searched_at(tree, text, place, parts) for text, place in places)
        yield from self._without(tree, failing)
        if not failing:
            yield from self._fewer(tree, parts)
        found = {text for text, _ in places}
        yield from (_nowhere(text) for text in texts if text not in found and len(text.text) <= _TEXT_CHARS)

    def _fewer(self, tree: exp.Query, parts: Sequence[Condition]) -> Iterator[exp.Query]:
        """Yield statements for conditions that find rows alone but not together; names are kept if possible."""
        ordered = sorted(parts, key=lambda part: any(map(self._is_name_column, part.texts)))
        for part in ordered:
            yield from self._without(tree, [part])
        for part in reversed(ordered):
            if part.table is not None:
                yield self._one_table(tree, part.table, without_aliases(part.node))

    def _is_met(self, part: Condition) -> bool:
        """Return whether a row meets the condition on its own; False if that is unknown."""
        return part.table is not None and bool(
            self._try(f"SELECT 1 FROM {quoted(part.table)} WHERE {part.sql} LIMIT 1")
        )

    def _is_name_column(self, text: SearchedText) -> bool:
        return text.column is not None and text.column == fold(self._name_columns.get(text.table or "") or "")

    def _without(self, tree: exp.Query, parts: Sequence[Condition]) -> Iterator[exp.Query]:
        """Yield the statement without some conditions, but with their columns, unless no condition is left."""
        if parts and len(parts) < len(conditions(tree, self._schema, self._dialect)):
            rest = edited(tree, [(part.node, None) for part in parts])
            yield _showing(rest, last=[column for part in parts for column in part.node.find_all(exp.Column)])

    def _searched_at(self, tree: exp.Query, text: SearchedText, place: _Place, parts: Sequence[Condition]) -> exp.Query:
        """Return the statement that searches a text at a place where it is."""
        if place.table == text.table and not isinstance(text.node, exp.Literal):
            column = text.node.find(exp.Column)
            alias = column.table if column is not None else ""
            changed = edited(tree, [(text.node, self._test(place, alias))])
            if column is None or text.node.find_ancestor(exp.Select) is not tree:
                return changed
            if not self._is_name_column(text):
                return changed if place.is_part else _showing(changed, last=[column])
            name = self._name_columns[place.table] if place.is_part else None
            return _showing(changed, first=[self._column(name, alias)] if name else ())
        columns = set(map(fold, self._schema.columns[place.table]))
        others = [
            without_aliases(part.node)
            for part in parts
            if text not in part.texts
            and part.table not in {None, place.table}
            and {fold(column.name) for column in part.node.find_all(exp.Column)} <= columns
        ]
        return self._one_table(tree, place.table, exp.and_(self._test(place), *others), place)

    def _test(self, place: _Place, alias: str = "") -> exp.Expr:
        column = self._column(place.column, alias)
        if place.is_part:
            return exp.Like(this=column, expression=exp.Literal.string(f"%{place.text}%"))
        return exp.EQ(this=column, expression=exp.Literal.string(place.text))

    def _column(self, name: str, alias: str = "") -> exp.Column:
        return exp.column(_identifier(name, self._dialect), table=_identifier(alias, self._dialect) if alias else None)

    def _one_table(self, tree: exp.Query, table: str, test: exp.Expr, place: _Place | None = None) -> exp.Query:
        """Return a SELECT of one table with the outputs of `tree` that the table has, else with the row's name.

        Of a row that is found by its name, and that has none of the outputs, all columns are read.
        """
        known = {fold(column): column for column in self._schema.columns[table]}
        name = self._name_columns.get(table)
        is_named = place is not None and not place.is_part and place.column == name
        outputs = [
            without_aliases(output.unalias())
            for output in tree.selects
            if not output.find(exp.Query) and {fold(c.name) for c in output.find_all(exp.Column)} <= known.keys()
        ]
        if is_named:
            outputs = [output for output in outputs if fold(output.name) != fold(name or "")]
        if not outputs and any(self._schema.spelled(each.name) == table for each in tree.find_all(exp.Table)):
            tested = {fold(column.name) for column in test.find_all(exp.Column)}
            mentioned = dict.fromkeys(fold(column.name) for column in tree.find_all(exp.Column))
            outputs = [self._column(known[column]) for column in mentioned if column in known and column not in tested]
        if not outputs:
            outputs = [exp.Star() if is_named or name is None else self._column(name)]
        select = exp.select(*outputs).from_(exp.Table(this=_identifier(table, self._dialect))).where(test)
        return select if is_named or name is None else _showing(select, first=[self._column(name)])

    def _places(self, text: SearchedText) -> list[_Place]:
        """Return the places of a text that the searched column does not contain, the most probable first."""
        here = (text.table, text.column)
        found = self._names.find(text.text)
        meant = [name for name in (*found.exact, *found.aliases) if not _is_at(name, here) or name.text != text.text]
        if own := [name for name in meant if _is_at(name, here)]:
            return _whole(own, here)
        part = comparable(text.text)
        inside = [name for name in found.longer if part in comparable(name.text)] if not meant else []
        named = [_Place(name.table, name.column, text.text, is_part=True) for name in inside]
        similar = [name for name in (*found.longer, *found.near, *found.abbreviated) if name not in inside]
        held = self._cells_with(text.text)
        first = _whole(meant, here)
        if text.table is not None and text.column is not None and not self._is_name_column(text):
            column = next(name for name in self._schema.columns[text.table] if fold(name) == text.column)
            beside = [place for place in held if place.table == text.table]
            parts = [name.text for name in meant]
            if not meant and not beside:
                parts = self._longest_part(text, column, is_like_names=bool(named or similar))
            beside.sort(key=lambda place: place.column != column)
            first = [*(_Place(text.table, column, part, is_part=True) for part in parts), *beside, *first]
        second = sorted((*named, *held), key=lambda place: place.table != text.table)
        return list(dict.fromkeys([*first, *second, *_whole(similar, here)]))

    def _cells_with(self, text: str) -> list[_Place]:
        """Return the columns with the text, except row names, the one with most occurrences first."""
        columns = self._texts.columns_with(text) if 1 < len(text) <= MAX_CHARS_SEARCHED else []
        others = ((table, column) for table, column in columns if column != self._name_columns[table])
        return [_Place(table, column, text, is_part=True) for table, column in others]

    def _longest_part(self, text: SearchedText, column: str, *, is_like_names: bool) -> list[str]:
        """Return the longest part of the text that its column contains, if it is long enough."""
        part = longest_part_in(text.text, self._texts.columns.get((text.table or "", column), ""))
        # Next to similar names, a part helps only with half of the text's length; otherwise a quarter is enough.
        is_long = part is not None and len(part) * (2 if is_like_names else 4) >= len(text.text)
        return [part] if part is not None and is_long else []

    def _after_missing_names(self, tree: exp.Query) -> Iterator[exp.Query | str]:
        """Yield statements for texts in a list such as `name IN ('a', 'b')` that are the name of no row."""
        yield from self._with_right_names(tree)
        for text in self._missing_names(tree)[:MAX_TEXTS]:
            place = None
            for place in self._places(text):
                if (place.table, fold(place.column)) != (text.table, text.column):
                    yield self._searched_at(tree, text, place, ())
            if place is None:
                yield _nowhere(text)

    def _with_right_names(self, tree: exp.Query) -> Iterator[exp.Query]:
        """Yield the statement with the nearest name of a row in place of each text of a list that is no name."""
        changes = []
        for text in self._missing_names(tree):
            found = self._names.find(text.text)
            names = (*found.exact, *found.aliases, *found.longer, *found.near, *found.abbreviated)
            name = next((name for name in names if _is_at(name, (text.table, text.column))), None)
            if name is not None:
                changes.append((text.node, exp.Literal.string(name.text)))
        if changes:
            yield edited(tree, changes)

    def _missing_names(self, tree: exp.Query) -> list[SearchedText]:
        """Return the texts of lists that are searched in a column of row names and are not found there."""
        texts = [text for text in listed_texts(tree, self._schema) if self._is_name_column(text) and text.text.strip()]
        # The index is limited in size, and MySQL ignores upper and lower case: the engine has the last word.
        return [text for text in texts if not self._is_listed(text)][:MAX_CONDITIONS]

    def _is_listed(self, text: SearchedText) -> bool:
        here = (text.table, text.column)
        if any(_is_at(name, here) and name.text == text.text for name in self._names.exact(text.text)):
            return True
        equal = f"{quoted(text.column or '')} = {self._dialect.text_literal(text.text)}"
        return bool(self._try(f"SELECT 1 FROM {quoted(text.table or '')} WHERE {equal} LIMIT 1"))

    def _after_empty_columns(self, tree: exp.Query, answer: QueryAnswer) -> Iterator[exp.Query | str]:
        """Yield the selected columns that are empty in all rows of the result, and a statement that reads others."""
        table = only_table(tree, self._schema)
        if table is None or any(output.is_star for output in tree.selects):
            return
        outputs = [tree.selects[place] for place in _empty_columns(answer)]
        empty = [output for output in outputs if isinstance(output.unalias(), exp.Column)]
        if not empty:
            return
        selected = {fold(output.unalias().name) for output in tree.selects}
        filled = self._filled_columns(table, where_of(tree, self._dialect), selected)
        if filled is None:
            return
        names = ", ".join(output.unalias().name for output in empty)
        yield f"empty here: {names}" if filled else f"empty here: {names}; so are the other columns"
        order = list(map(fold, self._schema.columns[table]))
        first = order.index(fold(empty[0].unalias().name))
        nearest = sorted(filled, key=lambda column: abs(order.index(fold(column)) - first))[:_READ_INSTEAD]
        if nearest:
            columns = [self._column(column) for column in nearest]
            kept = [output for output in tree.selects if output not in empty]
            changed = tree.copy()
            changed.set("expressions", [*(output.copy() for output in kept), *columns])
            yield changed

    def _filled_columns(self, table: str, where: str, known: Collection[str]) -> list[str] | None:
        """Return the columns, except `known`, that are non-empty in one of the first rows; None if the query fails."""
        known = {*known, "id", fold(self._name_columns.get(table) or "")}
        others = [column for column in self._schema.columns[table] if fold(column) not in known]
        filled = ", ".join(f"max(length(trim({quoted(column)}))) > 0" for column in others)
        rows = f"SELECT * FROM {quoted(table)} {where} LIMIT {FEW_ROWS}"
        flags = self._try(f"SELECT {filled} FROM ({rows}) AS found") if others else [()]
        return [column for column, flag in zip(others, flags[0], strict=True) if flag] if flags else None


@cache
def _keywords(dialect: Dialect) -> frozenset[str]:
    return frozenset(word for words in dialect.grammar.tokenizer_class.KEYWORDS for word in words.split())


def _identifier(name: str, dialect: Dialect) -> exp.Identifier:
    is_plain = _WORD.fullmatch(name) is not None and name.upper() not in _keywords(dialect)
    return exp.to_identifier(name, quoted=not is_plain)


def _showing(tree: exp.Query, first: Iterable[exp.Column] = (), last: Iterable[exp.Column] = ()) -> exp.Query:
    """Add columns before and behind the outputs of `tree`, if all of its outputs are plain columns, and return it."""
    outputs = [output.unalias() for output in tree.selects]
    is_plain = all(isinstance(output, exp.Column) and not output.is_star for output in outputs)
    if isinstance(tree, exp.Select) and is_plain and not tree.args.get("distinct") and not tree.args.get("group"):
        shown = {fold(output.name) for output in outputs}
        before, behind = (
            list({fold(column.name): column.copy() for column in columns if fold(column.name) not in shown}.values())
            for columns in (first, last)
        )
        tree.set("expressions", [*before, *tree.selects, *behind])
    return tree


def _nowhere(text: SearchedText) -> str:
    return f"nothing is like '{text.text}'; LIKE '%part%' finds parts"


def _whole(names: Iterable[Name], here: tuple[str | None, str | None]) -> list[_Place]:
    """Return the places of names, those in the searched column first."""
    ordered = sorted(names, key=lambda name: not _is_at(name, here))
    return [_Place(name.table, name.column, name.text) for name in ordered]


def _is_at(name: Name, here: tuple[str | None, str | None]) -> bool:
    return (name.table, fold(name.column)) == here


def _selects_a_column(tree: exp.Query) -> bool:
    """Return whether a SELECT outputs a plain column or `*`: then a single record is a table row, not an aggregate."""
    return any(output.is_star or isinstance(output.unalias(), exp.Column) for output in tree.selects)


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
