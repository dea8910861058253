"""A SELECT as a record of its parts (select list, table, joins, conditions, groups, order), and its text as SQL."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sql_agent.schemas import Cell
from sql_agent.tasks.described.table_rows import DatabaseRows

Operator = Literal["=", "<>", ">", ">=", "<", "<=", "LIKE", "NOT LIKE", "IS NOT", "IN", "NOT IN"]
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    **{"=": operator.eq, "<>": operator.ne},
    **{">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le},
}
Function = Literal["COUNT", "AVG", "MIN", "MAX", "SUM"]


@dataclass(frozen=True)
class Output:
    """A column of `table` (default: the statement's), or a `function` of its values or of its `distinct` values."""

    column: str = "*"
    table: str = ""
    function: Function | None = None
    distinct: bool = False


COUNT = Output(function="COUNT")


@dataclass(frozen=True)
class Comparison:
    """A comparison of a column of `table` (default: the statement's) with a value or with the result of a statement.

    LIKE tests whether the column contains the value.
    """

    column: str
    operator: Operator
    value: Cell | Statement
    table: str = ""

    def holds(self, cell: Cell) -> bool:
        """Return whether `cell` passes the test; NULL never does, as in SQL. LIKE and IN are not supported."""
        if cell is None or self.operator == "IS NOT":
            return cell is not None
        if self.operator not in {"=", "<>"} and isinstance(cell, str) != isinstance(self.value, str):
            return False
        return bool(_HOLDS[self.operator](cell, self.value))


@dataclass(frozen=True)
class Join:
    """A join of `table`. Its `column` equals the column `to` or, if `contains`, is part of the text in `to`.

    The column `to` is in the table `of`, which an earlier join adds, or by default in the statement's table.
    """

    table: str
    column: str
    to: str
    contains: bool = False
    of: str = ""


@dataclass(frozen=True)
class Statement:
    """A SELECT of `outputs` from `table`; `distinct` leaves out repeated rows.

    where      tests that must all hold; with `any_test` one of them must hold
    group_by   what rows are grouped by; `more_than` keeps only groups with more rows than this number
    order_by   what rows are ordered by; `descending` puts the largest value first
    limit      maximum number of rows
    combined   a set operation, and its second statement
    """

    table: str
    outputs: tuple[Output, ...]
    where: tuple[Comparison, ...] = ()
    any_test: bool = False
    joins: tuple[Join, ...] = ()
    distinct: bool = False
    group_by: Output | None = None
    more_than: int | None = None
    order_by: Output | None = None
    descending: bool = False
    limit: int | None = None
    combined: tuple[Literal["INTERSECT", "EXCEPT"], Statement] | None = None

    def sql(self, names: DatabaseRows) -> str:
        """Return the statement in the dialect of the database, with names quoted where they need it."""
        written, dialect = names.written, names.dialect

        def column(name: str, table: str = "") -> str:
            if name == "*":
                return name
            return f"{written(table or self.table)}.{written(name)}" if self.joins else written(name)

        def output(each: Output) -> str:
            text = column(each.column, each.table)
            return f"{each.function}({'DISTINCT ' if each.distinct else ''}{text})" if each.function else text

        def literal(value: Cell | Statement) -> str:
            if isinstance(value, Statement):
                return f"({value.sql(names)})"
            return dialect.text_literal(value) if isinstance(value, str) else "NULL" if value is None else str(value)

        def test(each: Comparison) -> str:
            value = f"%{each.value}%" if each.operator in {"LIKE", "NOT LIKE"} else each.value
            return f"{column(each.column, each.table)} {each.operator} {literal(value)}"

        select = "SELECT DISTINCT" if self.distinct else "SELECT"
        parts = [f"{select} {', '.join(map(output, self.outputs))} FROM {written(self.table)}"]
        for join in self.joins:
            own, other = column(join.to, join.of), column(join.column, join.table)
            equals = "LIKE " + dialect.joined("'%'", other, "'%'") if join.contains else f"= {other}"
            parts.append(f"JOIN {written(join.table)} ON {own} {equals}")
        if self.where:
            parts.append(f"WHERE {(' OR ' if self.any_test else ' AND ').join(map(test, self.where))}")
        if self.group_by is not None:
            parts.append(f"GROUP BY {output(self.group_by)}")
        if self.more_than is not None:
            parts.append(f"HAVING COUNT(*) > {self.more_than}")
        if self.order_by is not None:
            parts.append(f"ORDER BY {output(self.order_by)}{' DESC' if self.descending else ''}")
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        if self.combined is not None:
            operation, other_statement = self.combined
            parts.append(f"{operation} {other_statement.sql(names)}")
        return " ".join(parts)
