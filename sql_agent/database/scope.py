"""Resolve the names in a statement to tables, and find out whether its rows come from tables of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import Schema, fold
from sql_agent.errors import QueryError


@dataclass(frozen=True)
class Output:
    """Describes an output column: whether it comes from a table of the schema."""

    name: str
    from_tables: bool


@dataclass(frozen=True)
class Relation:
    """Describes an item of a FROM clause; `table_rows`: its rows are rows of tables of the schema."""

    columns: tuple[Output, ...]
    table_rows: bool

    @property
    def from_tables(self) -> bool:
        return any(column.from_tables for column in self.columns)


Names = Mapping[str, Relation]


class RefusedByDesignError(QueryError):
    """SQLite would run the statement: a WITH query that is recursive, or has the name of a table and so misleads."""


class Scopes:
    """Resolves the names of one parsed statement against a schema."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self._schema = schema
        self._dialect = dialect
        self._row_functions = dialect.aggregates | dialect.window_functions
        self._schema_tables = _schema_tables(schema, dialect)
        self._allowed: set[int] = set()  # by id: the tables of the statement that were looked up

    def resolve(self, query: exp.Expr) -> Relation:
        """Return the relation that the statement gives. Raises QueryError for a table that may not be read."""
        relation = self._query(query, {}, ())
        # Whatever sqlglot makes of a statement: a table that was met nowhere above is one that nobody allowed.
        for table in query.find_all(exp.Table):
            if id(table) not in self._allowed:
                message = f"the table {table.name} stands where no table may"
                raise QueryError("forbidden_table", message, hint="name tables after FROM and JOIN")
        return relation

    def _query(self, query: exp.Expr, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        if isinstance(query, exp.Subquery):
            return _merged(self._relation(query, ctes, outer).values())
        if isinstance(query, exp.Values):
            return self._values(query, ctes, outer)
        visible = self._with(query, ctes, outer)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, visible, outer)
        return self._select(query, visible, outer)

    def _with(self, query: exp.Expr, ctes: Names, outer: tuple[Names, ...]) -> Names:
        """Return the WITH queries that `query` can use, its own included."""
        clause = query.args.get("with_")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise _recursion_refused()
        visible = dict(ctes)
        for cte in clause.expressions:
            name = self._dialect.table_key(cte.alias)
            if name in self._schema_tables or name in self._schema.other_tables:
                message = f"WITH redefines the table {name}"
                raise RefusedByDesignError("forbidden_table", message, hint="give the WITH query another name")
            relation = self._query(cte.this, {**visible, name: _BEING_DEFINED}, outer)
            visible[name] = _renamed(relation, cte)
        return visible

    def _set_operation(self, query: exp.SetOperation, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        left = self._query(query.this, ctes, outer)
        right = self._query(query.expression, ctes, outer)
        self._clauses(query, ctes, ({}, *outer))
        columns = tuple(
            Output(ours.name, ours.from_tables or theirs.from_tables)
            for ours, theirs in zip(left.columns, right.columns, strict=False)
        )
        return Relation(columns, left.table_rows or right.table_rows)

    def _select(self, select: exp.Expr, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        sources: dict[str, Relation] = {}
        clause = select.args.get("from_")
        relations = [clause.this] if clause is not None else []
        relations += [join.this for join in select.args.get("joins") or ()]
        for relation in relations:
            sources |= self._relation(relation, ctes, outer, taken=len(sources))
        scopes = (sources, *outer)
        columns: list[Output] = []
        for output in select.expressions:
            if _is_star(output):
                columns += _starred(output, sources)
            else:
                columns.append(Output(fold(output.alias_or_name), self._from_tables(output, ctes, scopes)))
        self._clauses(select, ctes, scopes)
        return Relation(tuple(columns), any(source.table_rows for source in sources.values()))

    def _values(self, values: exp.Values, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
        columns = []
        for number, cells in enumerate(zip(*rows, strict=False), 1):
            found = [self._from_tables(cell, ctes, outer) for cell in cells]
            columns.append(Output(f"column{number}", any(found)))
        return Relation(tuple(columns), table_rows=False)

    def _clauses(self, query: exp.Expr, ctes: Names, scopes: tuple[Names, ...]) -> None:
        """Resolve the tables of what stands outside the output columns."""
        for key, value in query.args.items():
            if key in {"with_", "from_", "this", "expression", "expressions"}:
                continue
            for node in value if isinstance(value, list) else (value,):
                condition = node.args.get("on") if isinstance(node, exp.Join) else node
                if isinstance(condition, exp.Expr):
                    self._from_tables(condition, ctes, scopes)

    def _relation(
        self, node: exp.Expr, ctes: Names, outer: tuple[Names, ...], *, taken: int = 0
    ) -> dict[str, Relation]:
        """Return the relations of one item of a FROM clause by name; unnamed ones get a number."""
        found: dict[str, Relation] = {}
        if isinstance(node, exp.Table):
            found[fold(node.alias_or_name)] = self._table(node, ctes)
        elif isinstance(node, exp.Values):
            found[fold(node.alias) or f"#{taken}"] = self._values(node, ctes, outer)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            found.update(self._relation(node.this, ctes, outer, taken=taken))
            if node.alias:
                found = {fold(node.alias): _merged(found.values())}
        elif isinstance(node, exp.Subquery):
            found[fold(node.alias) or f"#{taken}"] = self._query(node.this, ctes, outer)
        elif isinstance(node, exp.Lateral):
            raise QueryError("syntax", "LATERAL is not allowed", hint=self._dialect.syntax_hint("LATERAL"))
        else:
            raise QueryError(
                "forbidden_table", f"{node.sql(self._dialect.name)} is not a table", hint=self._schema.only_these
            )
        for join in node.args.get("joins") or ():
            found.update(self._relation(join.this, ctes, outer, taken=taken + len(found)))
            if join.args.get("on"):
                self._from_tables(join.args["on"], ctes, (found, *outer))
        return found

    def _table(self, node: exp.Table, ctes: Names) -> Relation:
        self._allowed.add(id(node))
        if not isinstance(node.this, exp.Identifier):
            raise QueryError(
                "forbidden_table", "a function cannot stand in place of a table", hint=self._schema.only_these
            )
        name, database = self._dialect.table_key(node.name), self._dialect.table_key(node.db)
        if name in ctes and not database:
            if ctes[name] is _BEING_DEFINED:
                raise _recursion_refused()
            return ctes[name]
        if name in self._schema_tables and database in {"", self._schema.database} and not node.catalog:
            return self._schema_tables[name]
        shown = f"{database}.{name}" if database else name
        if fold(name).startswith(("sqlite_", "pragma_")) or fold(database) == "information_schema":
            raise QueryError("forbidden_table", f"{shown} may not be read", hint=self._schema.listing)
        if database or name in self._schema.other_tables:
            raise QueryError("forbidden_table", f"{shown} may not be read", hint=self._schema.only_these)
        raise QueryError("unknown_table", f"no such table: {shown}", hint=self._schema.nearest_table(name))

    def _from_tables(self, root: exp.Expr, ctes: Names, scopes: tuple[Names, ...]) -> bool:
        """Return whether an expression uses a table of the schema, and resolve its subqueries."""
        found = False
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, exp.Query | exp.Values):
                relation = self._query(node, ctes, scopes)
                found |= relation.from_tables or (isinstance(node.parent, exp.Exists) and relation.table_rows)
            elif isinstance(node, exp.Column):
                found |= _look_up(node, scopes, self._dialect.row_ids)
            else:
                if (name := self._dialect.called(node)) in self._row_functions:
                    found |= bool(scopes) and _counts_rows(node, name, scopes[0])
                stack.extend(node.iter_expressions())
        return found


_BEING_DEFINED = Relation((), table_rows=False)


@lru_cache(maxsize=8)
def _schema_tables(schema: Schema, dialect: Dialect) -> Names:
    return {
        dialect.table_key(table): Relation(tuple(Output(fold(name), True) for name in columns), table_rows=True)
        for table, columns in schema.tables
    }


def _recursion_refused() -> QueryError:
    return RefusedByDesignError("too_complex", "recursive WITH queries are not allowed", hint="use a plain SELECT")


def _merged(relations: Iterable[Relation]) -> Relation:
    parts = tuple(relations)
    columns = tuple(column for part in parts for column in part.columns)
    return Relation(columns, any(part.table_rows for part in parts))


def _renamed(relation: Relation, cte: exp.Expr) -> Relation:
    """Rename the columns of `relation` as `WITH name(a, b) AS` says, if it names any."""
    names = [fold(column.name) for column in cte.args["alias"].args.get("columns") or ()]
    if not names:
        return relation
    columns = (replace(column, name=name) for name, column in zip(names, relation.columns, strict=False))
    return replace(relation, columns=tuple(columns))


def _is_star(output: exp.Expr) -> bool:
    """Return whether an output is `*` or `t.*`; sqlglot's `is_star` also holds of a subquery that selects them."""
    return isinstance(output, exp.Star) or (isinstance(output, exp.Column) and isinstance(output.this, exp.Star))


def _starred(output: exp.Expr, sources: Names) -> list[Output]:
    """Return the columns that `*` or `t.*` stands for."""
    table = fold(output.table) if isinstance(output, exp.Column) else ""
    return [column for name, source in sources.items() if not table or name == table for column in source.columns]


def _look_up(column: exp.Column, scopes: tuple[Names, ...], row_ids: frozenset[str]) -> bool:
    """Return whether a column comes from a table of the schema, in the innermost scope that has it."""
    table, name = fold(column.table), fold(column.name)
    for sources in scopes:
        named = [source for source_name, source in sources.items() if not table or table == source_name]
        found = [output for source in named for output in source.columns if output.name == name]
        if found:
            return any(output.from_tables for output in found)
        if name in row_ids and any(source.table_rows for source in named):
            return True
    return False


def _counts_rows(function: exp.Expr, name: str | None, sources: Names) -> bool:
    """Return whether an aggregate or window function reads rows of a table (max(1, 2) reads none)."""
    scalar = name in {"max", "min"} and len(function.expressions) > 1
    return not scalar and any(source.table_rows for source in sources.values())
