"""A SELECT statement as a value: outputs, table, join, tests, groups and order, rendered for a dialect at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sql_agent.database.schema import fold
from sql_agent.schemas import Cell
from sql_agent.tasks.described.table_rows import DatabaseRows

Operator = Literal["=", "<>", ">", ">=", "<", "<=", "LIKE", "NOT LIKE", "IS NOT", "IN", "NOT IN"]
Function = Literal["COUNT", "AVG", "MIN", "MAX", "SUM"]


@dataclass(frozen=True)
class Output:
    """A column of the statement's table or of `table`, or a `function` of it, with `distinct` of its values."""

    column: str = "*"
    table: str = ""
    function: Function | None = None
    distinct: bool = False


COUNT = Output(function="COUNT")


@dataclass(frozen=True)
class Comparison:
    """A comparison of a column, of the statement's table or of `table`, with a value or with what a statement returns.

    LIKE searches a part.
    """

    column: str
    operator: Operator
    value: Cell | Statement
    table: str = ""

    def holds(self, cell: Cell) -> bool:
        """Return whether `cell` passes, as the database decides; an empty cell passes no test."""
        if cell is None or self.operator == "IS NOT":
            return cell is not None
        if self.operator in {"LIKE", "NOT LIKE"}:
            return (fold(str(self.value)) in fold(str(cell))) == (self.operator == "LIKE")
        if self.operator in {"=", "<>"}:
            return (cell == self.value) == (self.operator == "=")
        if isinstance(cell, str) != isinstance(self.value, str):
            return False
        order = (cell > self.value) - (cell < self.value)  # type: ignore[operator]
        return {">": order > 0, ">=": order >= 0, "<": order < 0, "<=": order <= 0}[self.operator]


@dataclass(frozen=True)
class Join:
    """Another table, whose `column` equals the column `to`, or with `contains` is part of it.

    The column `to` is of the statement's table, or of the table `of`, which is joined before.
    """

    table: str
    column: str
    to: str
    contains: bool = False
    of: str = ""


@dataclass(frozen=True)
class Statement:
    """A SELECT of `outputs` from `table`, with `distinct` of different rows.

    where       tests that all hold, or with `any_test` at least one
    group_by    what rows are grouped by; `more_than` keeps groups with more rows
    order_by    what rows are ordered by, `descending` or not
    limit       most rows of the result
    combined    a set operation, and the statement whose rows it takes
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
        return _Rendering(self, names).text()


class _Rendering:
    def __init__(self, statement: Statement, names: DatabaseRows) -> None:
        self._statement, self._names = statement, names

    def text(self) -> str:
        statement, written = self._statement, self._names.written
        select = "SELECT DISTINCT" if statement.distinct else "SELECT"
        parts = [f"{select} {', '.join(map(self._output, statement.outputs))} FROM {written(statement.table)}"]
        for join in statement.joins:
            own, other = self._column(join.to, join.of), self._column(join.column, join.table)
            if join.contains:
                pattern = self._names.dialect.joined("'%'", other, "'%'")
                parts.append(f"JOIN {written(join.table)} ON {own} LIKE {pattern}")
            else:
                parts.append(f"JOIN {written(join.table)} ON {own} = {other}")
        if statement.where:
            parts.append(f"WHERE {(' OR ' if statement.any_test else ' AND ').join(map(self._test, statement.where))}")
        if statement.group_by is not None:
            parts.append(f"GROUP BY {self._output(statement.group_by)}")
        if statement.more_than is not None:
            parts.append(f"HAVING COUNT(*) > {statement.more_than}")
        if statement.order_by is not None:
            parts.append(f"ORDER BY {self._output(statement.order_by)}{' DESC' if statement.descending else ''}")
        if statement.limit is not None:
            parts.append(f"LIMIT {statement.limit}")
        if statement.combined is not None:
            operation, other_statement = statement.combined
            parts.append(f"{operation} {other_statement.sql(self._names)}")
        return " ".join(parts)

    def _column(self, column: str, table: str = "") -> str:
        """Return a column, with its table where two tables are read."""
        if column == "*":
            return "*"
        name = self._names.written(column)
        return f"{self._names.written(table or self._statement.table)}.{name}" if self._statement.joins else name

    def _output(self, output: Output) -> str:
        column = self._column(output.column, output.table)
        if output.function is None:
            return column
        return f"{output.function}({'DISTINCT ' if output.distinct else ''}{column})"

    def _test(self, test: Comparison) -> str:
        column = self._column(test.column, test.table)
        if test.operator in {"LIKE", "NOT LIKE"}:
            return f"{column} {test.operator} {self._names.dialect.text_literal(f'%{test.value}%')}"
        return f"{column} {test.operator} {self._literal(test.value)}"

    def _literal(self, value: Cell | Statement) -> str:
        if isinstance(value, Statement):
            return f"({value.sql(self._names)})"
        if value is None:
            return "NULL"
        return self._names.dialect.text_literal(value) if isinstance(value, str) else str(value)
