"""Check that a statement reads only allowed tables, and whether its output columns come from these tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from sqlglot import exp

from sql_agent.database.dialect import WINDOW_FUNCTIONS, Dialect, from_items
from sql_agent.database.schema import ROW_IDS, Schema, fold
from sql_agent.errors import QueryError


class RefusedByDesignError(QueryError):
    """A WITH query is refused although SQLite would run it, because it is recursive or has the name of a table."""


class Relation(NamedTuple):
    """The origin of the columns and rows of a query or table.

    `columns` are pairs of a name and whether the column comes from a table of the schema. `table_rows` is whether the
    rows come from such a table.
    """

    columns: tuple[tuple[str, bool], ...]
    table_rows: bool

    @property
    def shows_tables(self) -> bool:
        return any(from_table for _, from_table in self.columns)


def check_tables(tree: exp.Query, schema: Schema, dialect: Dialect) -> None:
    """Raise QueryError unless every table in the statement is a table of the schema or a WITH query."""
    known = _schema_tables(schema, dialect)
    for node in tree.dfs():
        if isinstance(node, exp.With) and node.args.get("recursive"):
            raise _recursion_refused()
        if isinstance(node, exp.CTE) and (name := dialect.table_key(node.alias)) in known.keys() | schema.other_tables:
            message = f"WITH redefines the table {name}"
            raise RefusedByDesignError("forbidden_table", message, hint="give the WITH query another name")
    for node in tree.dfs():
        if isinstance(node, exp.Table):
            _check_table(node, schema, dialect)
        elif isinstance(node, exp.From | exp.Join) and not isinstance(
            item := node.this, exp.Table | exp.Subquery | exp.Values
        ):
            if isinstance(item, exp.Lateral):
                raise QueryError("syntax", "LATERAL is not allowed", hint=dialect.syntax_hint("LATERAL"))
            message = f"{item.sql(dialect.name)} is not a table"
            raise QueryError("forbidden_table", message, hint=schema.only_these)


def _check_table(table: exp.Table, schema: Schema, dialect: Dialect) -> None:
    if not isinstance(table.this, exp.Identifier):
        raise QueryError("forbidden_table", "a function cannot be used as a table", hint=schema.only_these)
    if _with_query(table, dialect) is not None or _schema_table(table, schema, dialect) is not None:
        return
    name, database = dialect.table_key(table.name), dialect.table_key(table.db)
    shown = f"{database}.{name}" if database else name
    is_about_schema = fold(name).startswith(("sqlite_", "pragma_")) or fold(database) == "information_schema"
    if is_about_schema or database or name in schema.other_tables:
        hint = schema.listing if is_about_schema else schema.only_these
        raise QueryError("forbidden_table", f"{shown} may not be read", hint=hint)
    raise QueryError("unknown_table", f"no such table: {shown}", hint=schema.nearest_table(name))


def _with_query(table: exp.Table, dialect: Dialect) -> exp.CTE | None:
    """Return the WITH query to which a table's name refers: the innermost one that is defined before the table.

    Returns None if there is no such WITH query. Raises RefusedByDesignError for a WITH query that reads itself.
    """
    if table.db:
        return None
    name = dialect.table_key(table.name)
    below: exp.Expr = table
    while (node := below.parent) is not None:
        visible: list[exp.CTE] = []
        if isinstance(node, exp.With):
            if dialect.table_key(below.alias) == name:
                raise _recursion_refused()
            visible = node.expressions[: below.index]
        elif (clause := node.args.get("with_")) is not None and clause is not below:
            visible = clause.expressions
        for cte in reversed(visible):
            if dialect.table_key(cte.alias) == name:
                return cte
        below = node
    return None


def _recursion_refused() -> QueryError:
    return RefusedByDesignError("too_complex", "recursive WITH queries are not allowed", hint="use a plain SELECT")


def _schema_table(table: exp.Table, schema: Schema, dialect: Dialect) -> Relation | None:
    if table.catalog or dialect.table_key(table.db) not in {"", schema.database}:
        return None
    return _schema_tables(schema, dialect).get(dialect.table_key(table.name))


@lru_cache(maxsize=8)
def _schema_tables(schema: Schema, dialect: Dialect) -> Mapping[str, Relation]:
    return {
        dialect.table_key(table): Relation(tuple((fold(name), True) for name in columns), table_rows=True)
        for table, columns in schema.tables
    }


def shows_tables(tree: exp.Query, schema: Schema, dialect: Dialect) -> bool:
    """Return whether an output column of a checked statement comes from a table of the schema or counts its rows."""
    return _Origins(schema, dialect).of_query(tree).shows_tables


class _Origins:
    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self._schema = schema
        self._dialect = dialect
        # Caches of queries and of FROM clauses, keyed by id(), because a WITH query may be used many times.
        self._queries: dict[int, Relation] = {}
        self._sources: dict[int, dict[str, Relation]] = {}

    def of_query(self, query: exp.Expr) -> Relation:
        if id(query) not in self._queries:
            self._queries[id(query)] = self._relation(query)
        return self._queries[id(query)]

    def _relation(self, query: exp.Expr) -> Relation:
        if isinstance(query, exp.Subquery):
            return _joined(self._items(query).values())
        if isinstance(query, exp.Values):
            rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in query.expressions]
            columns = (any(map(self._uses_tables, cells)) for cells in zip(*rows, strict=False))
            return Relation(tuple((f"column{n}", found) for n, found in enumerate(columns, 1)), table_rows=False)
        if isinstance(query, exp.SetOperation):
            left, right = self.of_query(query.this), self.of_query(query.expression)
            both = zip(left.columns, right.columns, strict=False)
            return Relation(tuple((name, a or b) for (name, a), (_, b) in both), left.table_rows or right.table_rows)
        sources = self._of_from(query)
        found: list[tuple[str, bool]] = []
        for output in query.expressions:
            if _is_star(output):
                table = fold(output.table) if isinstance(output, exp.Column) else ""
                found += [pair for name, item in sources.items() if table in {"", name} for pair in item.columns]
            else:
                found.append((fold(output.alias_or_name), self._uses_tables(output)))
        return Relation(tuple(found), any(item.table_rows for item in sources.values()))

    def _of_from(self, select: exp.Expr) -> dict[str, Relation]:
        """Return the relations in a SELECT's FROM clause, keyed by name or alias; unnamed relations get a number."""
        if id(select) not in self._sources:
            found: dict[str, Relation] = {}
            for item in from_items(select):
                found |= self._items(item, len(found))
            self._sources[id(select)] = found
        return self._sources[id(select)]

    def _items(self, node: exp.Expr, taken: int = 0) -> dict[str, Relation]:
        """Return the relations of one item of a FROM clause; an item in parentheses may have several relations."""
        if isinstance(node, exp.Table):
            found = {fold(node.alias_or_name): self._of_table(node)}
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            found = self._items(node.this, taken)
            if node.alias:
                found = {fold(node.alias): _joined(found.values())}
        else:
            query = node.this if isinstance(node, exp.Subquery) else node
            found = {fold(node.alias) or f"#{taken}": self.of_query(query)}
        for join in node.args.get("joins") or ():
            found |= self._items(join.this, taken + len(found))
        return found

    def _of_table(self, table: exp.Table) -> Relation:
        cte = _with_query(table, self._dialect)
        if cte is None:
            return _schema_table(table, self._schema, self._dialect) or Relation((), table_rows=False)
        relation = self.of_query(cte.this)
        names = [fold(column.name) for column in cte.args["alias"].columns]
        columns = zip(names, (found for _, found in relation.columns), strict=False) if names else relation.columns
        return relation._replace(columns=tuple(columns))

    def _uses_tables(self, root: exp.Expr) -> bool:
        """Return whether an expression uses a column of a table of the schema, or counts rows of such a table."""
        found = False
        stack = [root]
        while stack and not found:
            node = stack.pop()
            if isinstance(node, exp.Query | exp.Values):
                relation = self.of_query(node)
                found = relation.shows_tables or (isinstance(node.parent, exp.Exists) and relation.table_rows)
            elif isinstance(node, exp.Column):
                found = self._is_of_table(node)
            else:
                found = self._counts_rows(node)
                stack.extend(node.iter_expressions())
        return found

    def _is_of_table(self, column: exp.Column) -> bool:
        """Return whether a column comes from a table of the schema; the innermost SELECT with the column decides."""
        table, name = fold(column.table), fold(column.name)
        for select in _selects_around(column):
            items = [item for source, item in self._of_from(select).items() if table in {"", source}]
            found = [from_table for item in items for own_name, from_table in item.columns if own_name == name]
            if found:
                return any(found)
            if name in ROW_IDS and any(item.table_rows for item in items):
                return True
        return False

    def _counts_rows(self, node: exp.Expr) -> bool:
        """Return whether `node` is an aggregate or window function over rows of a table; max(1, 2) is none."""
        name = self._dialect.called(node)
        if name not in self._dialect.aggregates | WINDOW_FUNCTIONS:
            return False
        select = next(_selects_around(node), None)
        is_scalar = name in {"max", "min"} and len(node.expressions) > 1
        return not is_scalar and select is not None and any(i.table_rows for i in self._of_from(select).values())


def _selects_around(node: exp.Expr) -> Iterator[exp.Select]:
    """Yield the SELECTs whose FROM clause is visible to `node`, the innermost first."""
    below, parent = node, node.parent
    while parent is not None:
        if isinstance(parent, exp.Select) and not isinstance(below, exp.From | exp.Join | exp.With):
            yield parent
        below, parent = parent, parent.parent


def _is_star(output: exp.Expr) -> bool:
    """Return whether an output is `*` or `t.*`. sqlglot's `is_star` is also true for a subquery with such an output."""
    return isinstance(output, exp.Star) or (isinstance(output, exp.Column) and isinstance(output.this, exp.Star))


def _joined(relations: Iterable[Relation]) -> Relation:
    parts = tuple(relations)
    columns = tuple(column for part in parts for column in part.columns)
    return Relation(columns, any(part.table_rows for part in parts))
