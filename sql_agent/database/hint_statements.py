"""Build the statements that hints suggest: they search another column, drop conditions, or select other columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from sqlglot import exp

from sql_agent.database.conditions import Condition, SearchedText, conditions, edited, without_aliases
from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import Schema, fold

_WORD = re.compile(r"[^\W\d]\w*")


class Place(NamedTuple):
    """A column whose cells contain `text`, as a whole cell or, with `is_part`, as a part of cells."""

    table: str
    column: str
    text: str
    is_part: bool = False


class Variants:
    """Builds variants of statements on one database. `name_columns` maps a table to the column that names its rows."""

    def __init__(self, schema: Schema, dialect: Dialect, name_columns: Mapping[str, str | None]) -> None:
        self._schema = schema
        self._dialect = dialect
        self._name_columns = name_columns

    def searched_at(
        self, tree: exp.Query, text: SearchedText, place: Place, parts: Sequence[Condition] = ()
    ) -> exp.Query:
        """Return the statement with the search for `text` moved to `place`.

        If `place` is in another table, or the text is in a list after IN, the result is a new SELECT from the place's
        table. The new SELECT keeps a condition in `parts` on another table if the place's table has its columns, too.
        """
        if place.table != text.table or isinstance(text.node, exp.Literal):
            columns = set(map(fold, self._schema.columns[place.table]))
            kept = [
                without_aliases(part.node)
                for part in parts
                if text not in part.texts and part.table not in {None, place.table} and _reads_only(part.node, columns)
            ]
            return self.of_one_table(tree, place, kept)
        column = text.node.find(exp.Column)
        changed = self.all_at(tree, {text: place})
        name = self._name_columns[place.table]
        alias = column.table if column is not None else ""
        if column is None or text.node.find_ancestor(exp.Select) is not tree:
            return changed
        if fold(name or "") != text.column:
            return changed if place.is_part else showing(changed, last=[column])
        return showing(changed, first=[self._column(name or "", alias)] if place.is_part else [])

    def all_at(self, tree: exp.Query, places: Mapping[SearchedText, Place]) -> exp.Query:
        """Return the statement with the search for each text moved to its place in `places`, in the same table."""
        found = [(text, place, text.node.find(exp.Column)) for text, place in places.items()]
        return edited(tree, [(text.node, self._test(at, column.table if column else "")) for text, at, column in found])

    def renamed(self, tree: exp.Query, names: Iterable[tuple[exp.Column, str]]) -> exp.Query:
        """Return the statement with columns renamed; `names` are pairs of a column and its new name."""
        return edited(tree, [(column, self._column(name, column.table)) for column, name in names])

    def without(self, tree: exp.Query, parts: Sequence[Condition]) -> list[exp.Query]:
        """Return a list with one statement: `tree` without the conditions `parts`, but with their columns as outputs.

        Returns [] if `parts` is empty or has all conditions of `tree`.
        """
        if not 0 < len(parts) < len(conditions(tree, self._schema, self._dialect)):
            return []
        rest = edited(tree, [(part.node, None) for part in parts])
        return [showing(rest, last=[column for part in parts for column in part.node.find_all(exp.Column)])]

    def without_unknown(self, tree: exp.Query, table: str) -> list[exp.Query]:
        """Return a list with one statement: `tree` without the outputs and conditions whose columns `table` lacks.

        It selects all columns if no output is left but the rows' name. Returns [] if no condition is left.
        """
        known, name = set(map(fold, self._schema.columns[table])), fold(self._name_columns[table] or "")
        parts = conditions(tree, self._schema, self._dialect)
        lost = [part for part in parts if not _reads_only(part.node, known)]
        if len(lost) == len(parts):
            return []
        rest = edited(tree, [(part.node, None) for part in lost])
        outputs = [output for output in rest.selects if _reads_only(output, known)]
        if len(outputs) < len(rest.selects) and all(fold(output.name) == name for output in outputs):
            outputs = [exp.Star()]
        rest.set("expressions", outputs)
        return [rest]

    def of_one_table(self, tree: exp.Query, where: Place | Condition, others: Iterable[exp.Expr] = ()) -> exp.Query:
        """Return a SELECT from the table of `where`, with the conditions `where` and `others`.

        It selects the outputs of `tree` whose columns the table has. If there are none, but `tree` reads the table, it
        selects the table's columns that `tree` mentions. If there are still none, it selects all columns if a row is
        found by its name or the rows have no names, else the names of the rows.
        """
        test = self._test(where) if isinstance(where, Place) else without_aliases(where.node)
        table = where.table or ""
        name = self._name_columns[table]
        is_named = isinstance(where, Place) and not where.is_part and where.column == name
        known = {fold(column): column for column in self._schema.columns[table]}
        outputs = [
            without_aliases(output.unalias())
            for output in tree.selects
            if not output.find(exp.Query) and _reads_only(output, known)
        ]
        if is_named:
            outputs = [output for output in outputs if fold(output.name) != fold(name or "")]
        if not outputs and any(self._schema.spelled(each.name) == table for each in tree.find_all(exp.Table)):
            tested = {fold(column.name) for column in test.find_all(exp.Column)}
            mentioned = dict.fromkeys(fold(column.name) for column in tree.find_all(exp.Column))
            outputs = [self._column(known[each]) for each in mentioned if each in known and each not in tested]
        if not outputs:
            outputs = [exp.Star() if is_named or name is None else self._column(name)]
        select = exp.select(*outputs).from_(exp.Table(this=self.identifier(table))).where(test, *others)
        return showing(select, first=[self._column(name)] if name is not None and not is_named else [])

    def reading(self, tree: exp.Query, columns: Iterable[str], *, instead_of: Sequence[exp.Expr]) -> exp.Query:
        """Return the statement with the outputs `columns` in place of `instead_of`."""
        kept = [output.copy() for output in tree.selects if output not in instead_of]
        changed = tree.copy()
        changed.set("expressions", [*kept, *map(self._column, columns)])
        return changed

    def _test(self, place: Place, alias: str = "") -> exp.Expr:
        column = self._column(place.column, alias)
        if place.is_part:
            return exp.Like(this=column, expression=exp.Literal.string(f"%{place.text}%"))
        return exp.EQ(this=column, expression=exp.Literal.string(place.text))

    def _column(self, name: str, alias: str = "") -> exp.Column:
        return exp.column(self.identifier(name), table=self.identifier(alias) if alias else None)

    def identifier(self, name: str) -> exp.Identifier:
        """Return `name` as an identifier, in quotes if the dialect needs them."""
        is_plain = _WORD.fullmatch(name) is not None and name.upper() not in _keywords(self._dialect)
        return exp.to_identifier(name, quoted=not is_plain)


def _reads_only(node: exp.Expr, columns: Collection[str]) -> bool:
    """Return whether all columns that `node` reads are in `columns`, which are in lower case."""
    return all(fold(column.name) in columns for column in node.find_all(exp.Column))


def showing(tree: exp.Query, first: Iterable[exp.Column] = (), last: Iterable[exp.Column] = ()) -> exp.Query:
    """Add the columns `first` and `last` at the two ends of the SELECT list of `tree`, and return `tree`.

    A list with other items than plain columns is unchanged, and so is a SELECT with DISTINCT or GROUP BY.
    """
    outputs = [output.unalias() for output in tree.selects]
    is_plain = all(isinstance(output, exp.Column) and not output.is_star for output in outputs)
    if isinstance(tree, exp.Select) and is_plain and not tree.args.get("distinct") and not tree.args.get("group"):
        shown = {fold(output.name) for output in outputs}
        before, after = (
            {fold(column.name): column.copy() for column in columns if fold(column.name) not in shown}.values()
            for columns in (first, last)
        )
        tree.set("expressions", [*before, *tree.selects, *after])
    return tree


@cache
def _keywords(dialect: Dialect) -> frozenset[str]:
    return frozenset(word for words in dialect.grammar.tokenizer_class.KEYWORDS for word in words.split())
