"""Resolve the names in a statement to tables, and find out whether its rows come from tables of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from sql_agent.database.allowed import AGGREGATES, WINDOW_FUNCTIONS
from sql_agent.database.schema import ROWID_NAMES, Schema, fold
from sql_agent.errors import QueryError

# Before SQLite can be interrupted, it copies a WITH query or subquery, and likewise a column's expression, into every
# place that uses it, and a few doublings take gigabytes. These bound the statement after copying.
MAX_PARTS = 40
MAX_SIZE = 4_000
MAX_COLUMNS = 200


@dataclass(frozen=True)
class Output:
    """Describes an output column: whether it comes from a table of the schema, and how many terms it has."""

    name: str
    from_tables: bool
    size: int = 1


@dataclass(frozen=True)
class Relation:
    """Describes an item of a FROM clause; `parts` counts its tables and SELECTs, copies included."""

    columns: tuple[Output, ...]
    table_rows: bool
    parts: int

    @property
    def from_tables(self) -> bool:
        return any(column.from_tables for column in self.columns)


@dataclass
class Use:
    """Sums up over an expression's terms what they use."""

    from_tables: bool = False
    size: int = 0
    parts: int = 0


Names = Mapping[str, Relation]


class Scopes:
    """Resolves one parsed statement against a schema; `tables_seen` counts the table names it has resolved."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._schema_tables = _schema_tables(schema)
        self.tables_seen = 0
        self.ctes: set[str] = set()

    def resolve(self, query: exp.Expr) -> Relation:
        """Return the relation that the statement gives. Raises QueryError for a table that may not be read."""
        return self._query(query, {}, ())

    def _query(self, query: exp.Expr, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        if isinstance(query, exp.Subquery):
            return _merged(self._relation(query, ctes, outer).values())
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
            name = fold(cte.alias)
            if name in self._schema_tables or name in self._schema.other_tables:
                raise QueryError(
                    "forbidden_table", f"WITH redefines the table {name}", hint="give the WITH query another name"
                )
            relation = self._query(cte.this, {**visible, name: _BEING_DEFINED}, outer)
            visible[name] = _renamed(relation, cte)
            self.ctes.add(name)
        return visible

    def _set_operation(self, query: exp.SetOperation, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        left = self._query(query.this, ctes, outer)
        right = self._query(query.expression, ctes, outer)
        total = Use(parts=left.parts + right.parts)
        self._clauses(query, ctes, ({}, *outer), total)
        columns = tuple(
            Output(ours.name, ours.from_tables or theirs.from_tables, ours.size + theirs.size)
            for ours, theirs in zip(left.columns, right.columns, strict=False)
        )
        return _bounded(columns, total, table_rows=left.table_rows or right.table_rows)

    def _select(self, select: exp.Expr, ctes: Names, outer: tuple[Names, ...]) -> Relation:
        sources: dict[str, Relation] = {}
        clause = select.args.get("from_")
        relations = [clause.this] if clause is not None else []
        relations += [join.this for join in select.args.get("joins") or ()]
        for relation in relations:
            sources |= self._relation(relation, ctes, outer, taken=len(sources))
        scopes = (sources, *outer)
        total = Use(parts=1 + sum(source.parts for source in sources.values()))
        columns: list[Output] = []
        for output in select.expressions:
            if output.is_star:
                columns += _starred(output, sources)
            else:
                use = self._expression(output, ctes, scopes)
                columns.append(Output(fold(output.alias_or_name), use.from_tables, use.size))
                total.parts += use.parts
            if len(columns) > MAX_COLUMNS:
                raise _too_complex(f"the statement has more than {MAX_COLUMNS} columns", "name the columns you need")
        self._clauses(select, ctes, scopes, total)
        rows = any(source.table_rows for source in sources.values())
        return _bounded(tuple(columns), total, table_rows=rows)

    def _clauses(self, query: exp.Expr, ctes: Names, scopes: tuple[Names, ...], total: Use) -> None:
        """Resolve the clauses other than the output columns, and add them to `total`."""
        for key, value in query.args.items():
            if key in {"with_", "from_", "this", "expression", "expressions"}:
                continue
            for node in value if isinstance(value, list) else (value,):
                condition = node.args.get("on") if isinstance(node, exp.Join) else node
                if isinstance(condition, exp.Expr):
                    use = self._expression(condition, ctes, scopes)
                    total.size += use.size
                    total.parts += use.parts

    def _relation(
        self, node: exp.Expr, ctes: Names, outer: tuple[Names, ...], *, taken: int = 0
    ) -> dict[str, Relation]:
        """Return the relations of one item of a FROM clause by name; unnamed ones get a number."""
        found: dict[str, Relation] = {}
        if isinstance(node, exp.Table):
            found[fold(node.alias_or_name)] = self._table(node, ctes)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            found.update(self._relation(node.this, ctes, outer, taken=taken))
            if node.alias:
                found = {fold(node.alias): _merged(found.values())}
        elif isinstance(node, exp.Subquery):
            found[fold(node.alias) or f"#{taken}"] = self._query(node.this, ctes, outer)
        else:
            raise QueryError("forbidden_table", f"{node.sql('sqlite')} is not a table", hint=self._schema.only_these)
        for join in node.args.get("joins") or ():
            found.update(self._relation(join.this, ctes, outer, taken=taken + len(found)))
            if join.args.get("on"):
                use = self._expression(join.args["on"], ctes, (found, *outer))
                found[f"#on{taken}{len(found)}"] = Relation((), table_rows=False, parts=use.parts)
        return found

    def _table(self, node: exp.Table, ctes: Names) -> Relation:
        self.tables_seen += 1
        if not isinstance(node.this, exp.Identifier):
            raise QueryError(
                "forbidden_table", "a function cannot stand in place of a table", hint=self._schema.only_these
            )
        name, database = fold(node.name), fold(node.db)
        if name in ctes and not database:
            if ctes[name] is _BEING_DEFINED:
                raise _recursion_refused()
            return replace(ctes[name], parts=ctes[name].parts + 1)
        if name in self._schema_tables and database in {"", "main"} and not node.catalog:
            return self._schema_tables[name]
        shown = f"{database}.{name}" if database else name
        if database or name in self._schema.other_tables or name.startswith(("sqlite_", "pragma_")):
            raise QueryError("forbidden_table", f"{shown} may not be read", hint=self._schema.only_these)
        raise QueryError("unknown_table", f"no such table: {shown}", hint=self._schema.nearest_table(name))

    def _expression(self, root: exp.Expr, ctes: Names, scopes: tuple[Names, ...]) -> Use:
        use = Use()
        stack = [root]
        while stack:
            node = stack.pop()
            use.size += 1
            if isinstance(node, exp.Query):
                relation = self._query(node, ctes, scopes)
                in_exists = isinstance(node.parent, exp.Exists)
                use.from_tables |= relation.from_tables or (in_exists and relation.table_rows)
                use.size += sum(column.size for column in relation.columns)
                use.parts += relation.parts
            elif isinstance(node, exp.Column):
                from_tables, size = _look_up(node, scopes)
                use.from_tables |= from_tables
                use.size += size
            else:
                if isinstance(node, exp.Anonymous) and fold(node.name) in _ROW_FUNCTIONS:
                    use.from_tables |= _counts_rows(node, scopes[0])
                stack.extend(node.iter_expressions())
        return use


_BEING_DEFINED = Relation((), table_rows=False, parts=0)
_ROW_FUNCTIONS = AGGREGATES | WINDOW_FUNCTIONS


@lru_cache(maxsize=8)
def _schema_tables(schema: Schema) -> Names:
    return {
        fold(table): Relation(tuple(Output(fold(name), True) for name in columns), table_rows=True, parts=1)
        for table, columns in schema.tables
    }


def _recursion_refused() -> QueryError:
    return _too_complex("recursive WITH queries are not allowed", "use a plain SELECT")


def _too_complex(message: str, hint: str) -> QueryError:
    return QueryError("too_complex", message, hint=hint)


def _bounded(columns: tuple[Output, ...], total: Use, *, table_rows: bool) -> Relation:
    if total.parts > MAX_PARTS:
        message = f"the statement reads more than {MAX_PARTS} tables and subqueries, counting each use of a WITH query"
        raise _too_complex(message, "join fewer tables")
    if total.size + sum(column.size for column in columns) > MAX_SIZE:
        raise _too_complex(f"the statement's expressions have more than {MAX_SIZE} terms", "use shorter expressions")
    return Relation(columns, table_rows, total.parts)


def _merged(relations: Iterable[Relation]) -> Relation:
    parts = tuple(relations)
    columns = tuple(column for part in parts for column in part.columns)
    return Relation(columns, any(part.table_rows for part in parts), sum(part.parts for part in parts))


def _renamed(relation: Relation, cte: exp.Expr) -> Relation:
    """Rename the columns of `relation` as `WITH name(a, b) AS` says, if it names any."""
    names = [fold(column.name) for column in cte.args["alias"].args.get("columns") or ()]
    if not names:
        return relation
    columns = (replace(column, name=name) for name, column in zip(names, relation.columns, strict=False))
    return replace(relation, columns=tuple(columns))


def _starred(output: exp.Expr, sources: Names) -> list[Output]:
    """Return the columns that `*` or `t.*` stands for."""
    table = fold(output.table) if isinstance(output, exp.Column) else ""
    return [column for name, source in sources.items() if not table or name == table for column in source.columns]


def _look_up(column: exp.Column, scopes: tuple[Names, ...]) -> tuple[bool, int]:
    """Return whether a column comes from a table, and its number of terms, in the innermost scope that has it."""
    table, name = fold(column.table), fold(column.name)
    for sources in scopes:
        named = [source for source_name, source in sources.items() if not table or table == source_name]
        found = [output for source in named for output in source.columns if output.name == name]
        if found:
            return any(output.from_tables for output in found), max(output.size for output in found)
        if name in ROWID_NAMES and any(source.table_rows for source in named):
            return True, 1
    return False, 1


def _counts_rows(function: exp.Anonymous, sources: Names) -> bool:
    """Return whether an aggregate or window function reads rows of a table (max(1, 2) reads none)."""
    scalar = fold(function.name) in {"max", "min"} and len(function.expressions) > 1
    return not scalar and any(source.table_rows for source in sources.values())
