"""Repair statements that read a column of a table without joining the table, by joins along the foreign keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sqlglot import exp

from sql_agent.database.dialect import from_items
from sql_agent.database.schema import ForeignKey, Schema, fold

_MAX_LINKS = 3  # maximum number of foreign keys between a table of the statement and the table with the column


def with_missing_joins(
    tree: exp.Query, schema: Schema, identifier: Callable[[str], exp.Identifier]
) -> Iterator[exp.Query]:
    """Yield `tree` with each unknown column read from the nearest table with this column; nothing if there is none.

    A table that the SELECT reads is the nearest; otherwise the table that is the fewest foreign keys away is joined. A
    join on an unknown column gets the condition of the foreign keys. If the SELECT needs its first table only for the
    join, `tree` is yielded twice: without this table, and then with it, because a join also filters rows. `identifier`
    quotes a name if the dialect needs quotes.
    """
    found: list[exp.Query] = []
    for drops in (True, False):
        changed = tree.copy()
        repaired = [_Repair(select, schema, identifier).run(drops=drops) for select in changed.find_all(exp.Select)]
        if all(repaired) and changed not in [tree, *found]:
            found.append(changed)
            yield changed


class _Repair:
    """The repair of one SELECT. `_tables` maps the alias or name of a table in this SELECT to the schema's table."""

    def __init__(self, select: exp.Select, schema: Schema, identifier: Callable[[str], exp.Identifier]) -> None:
        self._select = select
        self._schema = schema
        self._identifier = identifier
        self._joins: list[exp.Join] = list(select.args.get("joins") or ())
        self._sources = from_items(select)
        self._tables: dict[str, str] = {}
        for source in self._sources:
            self._add(source)

    def run(self, *, drops: bool) -> bool:
        """Repair the SELECT; return whether all its columns are known. With `drops`, remove an unneeded first table."""
        columns = [each for each in self._select.find_all(exp.Column) if each.parent_select is self._select]
        unknown = [column for column in columns if not self._is_known(column)]
        if not unknown:
            return True
        is_plain = bool(self._tables) and len(self._tables) == len(self._sources)
        if not is_plain or any(output.is_star for output in self._select.selects) or self._is_ambiguous(unknown):
            return False
        owners = {id(column): next(iter(self._owners(column)), None) for column in columns if not column.table}
        first, *_ = self._tables
        if not self._join_again(unknown):
            return False
        for column in unknown:
            if column.find_ancestor(exp.Join, exp.Select) is self._select:
                name = self._reach(lambda table, column=column: self._has(table, column))  # type: ignore[misc]
                if name is None:
                    return False
                column.set("table", self._identifier(name))
        for column in columns:  # a joined table may have a column of the same name
            if not column.table and (owner := owners[id(column)]) and len(self._owners(column)) > 1:
                column.set("table", self._identifier(owner))
        if drops:
            self._drop(first)
        return True

    def _add(self, source: exp.Expr) -> None:
        table = self._schema.spelled(source.name) if isinstance(source, exp.Table) else None
        if table is not None:
            self._tables[source.alias_or_name] = table

    def _has(self, table: str, column: exp.Column) -> bool:
        return fold(column.name) in map(fold, self._schema.columns[table])

    def _owners(self, column: exp.Column) -> list[str]:
        return [name for name, table in self._tables.items() if self._has(table, column)]

    def _is_known(self, column: exp.Column) -> bool:
        if column.table:
            names = {fold(source.alias_or_name): source.alias_or_name for source in self._sources}
            if fold(column.table) in names:
                table = self._tables.get(names[fold(column.table)])
                return table is None or self._has(table, column)
        elif self._owners(column) or (column.this.quoted and fold(column.name) not in self._schema.column_names):
            return True  # SQLite reads a quoted name as a text if no column has the name
        elif fold(column.name) in {fold(output.alias) for output in self._select.selects if output.alias}:
            return True
        outer = self._select.parent_select
        return isinstance(outer, exp.Select) and _Repair(outer, self._schema, self._identifier)._is_known(column)

    def _is_ambiguous(self, unknown: Collection[exp.Column]) -> bool:
        """Return whether two columns of `unknown` differ only in the table, or one is from outside a nested SELECT."""
        known = {"", *map(fold, self._tables)}
        read = {(fold(column.name), fold(column.table)) for column in unknown}
        is_outer = not {table for _, table in read} <= known and self._select.parent_select is not None
        return is_outer or len({name for name, _ in read}) < len(read)

    def _join_again(self, unknown: Collection[exp.Column]) -> bool:
        """Join along foreign keys where a join's condition has a column of `unknown`; return whether all succeed."""
        wrong = [join for join in self._joins if any(column.find_ancestor(exp.Join) is join for column in unknown)]
        if not wrong:
            return True
        self._tables.clear()
        self._add(self._sources[0])
        self._select.set("joins", [])
        for join in self._joins:
            table = self._schema.spelled(join.this.name)
            if join not in wrong:
                self._select.append("joins", join)
                self._add(join.this)
            elif join.side or not isinstance(join.args.get("on"), exp.EQ):
                return False  # another condition would be lost
            elif not self._reach(lambda end, table=table: end == table, join.this):  # type: ignore[misc]
                return False
        return True

    def _reach(self, is_wanted: Callable[[str], bool], source: exp.Expr | None = None) -> str | None:
        """Join the nearest table for which `is_wanted` is true, and the tables on the way; return its name or alias.

        `source` is the table's item for FROM; without `source`, a table that the SELECT reads is not joined again.
        Returns None if there is no such table, or if several foreign keys of one table lead to it, such as those from a
        flight to its two airports.
        """
        paths: list[tuple[str, tuple[ForeignKey, ...], str]] = [
            (name, (), table) for name, table in self._tables.items()
        ]
        for _ in range(_MAX_LINKS + 1):
            found = [(start, links, end) for start, links, end in paths if is_wanted(end) and (links or source is None)]
            if found:
                start, links, end = found[0]
                is_only = [(first, last) for first, _, last in found].count((start, end)) == 1
                return self._join(start, links, source) if is_only else None
            paths = [
                (start, (*links, link), link.table)
                for start, links, end in paths
                for link in self._schema.links_of(end)
            ]
        return None

    def _join(self, start: str, links: tuple[ForeignKey, ...], source: exp.Expr | None) -> str | None:
        name = start
        for link in links:
            is_last = source is not None and link is links[-1]
            joined = next((each for each, table in self._tables.items() if table == link.table and not is_last), None)
            if joined is None:
                table = source if source is not None and is_last else exp.Table(this=self._identifier(link.table))
                joined = table.alias_or_name
                if fold(joined) in map(fold, self._tables):
                    return None
                on = exp.EQ(this=self._column(link.column, name), expression=self._column(link.target, joined))
                self._select.join(table, on=on, copy=False)
                self._tables[joined] = link.table
            name = joined
        return name

    def _column(self, name: str, table: str) -> exp.Column:
        return exp.Column(this=self._identifier(name), table=self._identifier(table))

    def _drop(self, first: str) -> None:
        """Leave out the table `first` of FROM if one table is joined and only the join's condition reads `first`."""
        joins = self._select.args.get("joins") or []
        if len(joins) == 1 and len(self._sources) == 1:
            read = [each for each in self._select.find_all(exp.Column) if each.find_ancestor(exp.Join) is None]
            if all(column.table and fold(column.table) != fold(first) for column in read):
                self._select.from_(joins[0].this, copy=False)
                self._select.set("joins", None)
