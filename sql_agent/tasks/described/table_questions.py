"""Questions about many rows at once: lists, averages, groups and sets, also over linked tables.

The result of the statement is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sql_agent.tasks.described.drafts import Draft
from sql_agent.tasks.described.row_subsets import Subset, SubsetDrafting
from sql_agent.tasks.described.statement import COUNT, Comparison, Function, Join, Output, Statement

_FUNCTIONS: tuple[tuple[Function, ...], ...] = (
    *(("AVG",), ("AVG",), ("AVG",), ("MAX",), ("MIN",), ("SUM",), ("SUM",)),
    *(("MIN", "MAX"), ("AVG", "MAX"), ("MIN", "AVG", "MAX")),
)
_KINDS_SHARE = 0.2  # share of the aggregates that count distinct values


class TableQuestions(SubsetDrafting):
    def listing(self) -> Iterator[Draft]:
        """Yield drafts that ask for one to three columns of several rows, or for the distinct values of one column.

        Some lists are sorted, or have a column of a linked table.
        """
        for table in self._subjects():
            columns = self._some_columns(table)
            subset = self._subset(table, all_share=0.4)
            if not columns or subset is None or subset.column in columns:
                continue
            kind = self._chosen.choice(("list", "list", "sorted", "distinct", "linked"))
            ones = [path for path in self._paths(table) if not path.many]
            if kind == "distinct" and (repeated := self._repeated(table)):
                column = self._chosen.choice(repeated)
                if column != subset.column:
                    statement = subset.statement(Output(column), distinct=True)
                    yield self._draft("distinct", subset, statement, self._labels(table, [column]))
            elif kind == "sorted" and (orders := self._table_columns(table, "number", "date", "name")):
                yield self._sorted(subset, columns, self._chosen.choice(list(orders)))
            elif kind == "linked" and ones:
                path = self._chosen.choice(ones)
                if other := self._some_columns(path.table)[:1]:
                    outputs = (Output(columns[0]), Output(other[0], path.table))
                    statement = Statement(table, outputs, joins=path.joins)
                    slots = self._labels(table, columns[:1]) | {"link": path.label}
                    slots["label2"] = self._labels(path.table, other)["label"]
                    yield self._draft("list_linked", Subset(table), statement, slots)
            else:
                statement = subset.statement(*map(Output, columns))
                yield self._draft("list", subset, statement, self._labels(table, columns))

    def _sorted(self, subset: Subset, columns: Sequence[str], order: str) -> Draft:
        column = self._catalog.column(subset.table, order)
        descending = self._chosen.random() < 0.5
        ways = self._words["orders"][column.kind if column.kind in {"number", "date"} else "text"]
        slots = self._labels(subset.table, columns) | {"order": column.label}
        outputs = map(Output, columns)
        statement = subset.statement(*outputs, order_by=Output(order), descending=descending, distinct=False)
        subset = replace(subset, phrases={**subset.phrases, "direction": tuple(ways[int(descending)])})
        return self._draft("sorted", subset, statement, slots)

    def aggregate(self) -> Iterator[Draft]:
        """Yield drafts that ask for an average, sum, minimum or maximum, or for a number of rows or distinct values."""
        for table in self._subjects():
            numbers = list(self._table_columns(table, "number"))
            subset = self._subset(table, all_share=0.3)
            if subset is None or subset.repeats:
                continue
            repeated = [column for column in self._repeated(table) if column != subset.column]
            if repeated and self._chosen.random() < _KINDS_SHARE:
                column = self._chosen.choice(repeated)
                kinds = subset.statement(Output(column, function="COUNT", distinct=True))
                yield self._draft("count_kinds", subset, kinds, self._labels(table, [column]))
            elif subset.joins and (not numbers or self._chosen.random() < 0.3):
                yield self._draft("count", subset, subset.statement(COUNT), {})
            elif numbers:
                column, functions = self._chosen.choice(numbers), self._chosen.choice(_FUNCTIONS)
                if column != subset.column:
                    statement = subset.statement(*(Output(column, function=function) for function in functions))
                    subset, slots = self._with_functions(subset, functions), self._labels(table, [column])
                    yield self._draft("aggregate", subset, statement, slots)

    def per_group(self) -> Iterator[Draft]:
        """Yield drafts that ask for a number of rows or an aggregate, by value of a column or by linked row."""
        for table in self._subjects():
            repeated, many = self._repeated(table), self._many(table)
            if many and self._chosen.random() < 0.5:
                path = self._chosen.choice(many)
                name, numbers = self._tables[table].name or path.key, list(self._table_columns(path.table, "number"))
                slots = self._labels(table, [name]) | {"others": path.plural}
                grouped = Statement(table, (Output(name),), joins=path.joins, group_by=Output(path.key))
                yield self._per("per_row", grouped, slots, numbers, 0.4, of=path.table)
            elif repeated:
                column = self._chosen.choice(repeated)
                numbers = [each for each in self._table_columns(table, "number") if each != column]
                grouped = Statement(table, (Output(column),), group_by=Output(column))
                yield self._per("per_value", grouped, self._labels(table, [column]), numbers, 0.5)

    def _per(
        self,
        key: str,
        grouped: Statement,
        slots: Mapping[str, str],
        numbers: Sequence[str],
        share: float,
        *,
        of: str = "",
    ) -> Draft:
        """Return a draft that asks for the size of each group or, with the probability `share`, for an aggregate.

        The aggregate reads a random one of the columns `numbers`. They are in the linked table `of`, or in the grouped
        table if `of` is empty.
        """
        subset, output = Subset(grouped.table), COUNT
        if numbers and self._chosen.random() < share:
            function, column = self._chosen.choice(_FUNCTIONS[:7])[0], self._chosen.choice(numbers)
            subset, output = self._with_functions(subset, [function]), Output(column, of, function=function)
            slots = {**slots, "label2": self._labels(of or grouped.table, [column])["label"]}
            key = f"function_{key}"
        statement = replace(grouped, outputs=(*grouped.outputs, output))
        return self._draft(key, subset, statement, slots)

    def groups(self) -> Iterator[Draft]:
        """Yield drafts that ask which value most, fewest or at least n rows have, or which row has most links."""
        for table in self._subjects():
            repeated, many = self._repeated(table), self._many(table)
            joins: tuple[Join, ...] = ()
            slots: dict[str, str] = {}
            if many and self._chosen.random() < 0.7:
                path, columns = self._chosen.choice(many), self._named_columns(table)
                key, kind, slots, joins = path.key, "row", {"others": path.plural}, path.joins
            elif repeated:
                key, kind = self._chosen.choice(repeated), "value"
                columns = [key]
            else:
                continue
            if not columns:
                continue
            slots |= self._labels(table, columns)
            how = self._chosen.choice(("most", "most", "fewest", "at_least"))
            least = self._chosen.choice((2, 2, 2, 3, 3, 4, 5, 12))
            grouped = Statement(table, tuple(map(Output, columns)), joins=joins, group_by=Output(key))
            if how == "at_least":
                statement = replace(grouped, more_than=least - 1)
            else:
                statement = replace(grouped, order_by=COUNT, descending=how == "most", limit=1)
            sentence = f"{how}_of_{kind}"
            yield self._draft(sentence, Subset(table), statement, {**slots, "number": str(least)})

    def average(self) -> Iterator[Draft]:
        """Yield drafts that ask for rows with a number above or below the average."""
        for table in self._subjects():
            numbers, columns = list(self._table_columns(table, "number")), self._named_columns(table)
            column = self._chosen.choice(numbers) if numbers else ""
            if not column or not columns or column in columns:
                continue
            mean = Statement(table, (Output(column, function="AVG"),))
            above = self._chosen.random() < 0.6
            test = Comparison(column, ">" if above else "<", mean)
            slots = self._labels(table, columns) | {"label2": self._catalog.column(table, column).label}
            statement = Statement(table, tuple(map(Output, columns)), where=(test,))
            key = "above_average" if above else "below_average"
            yield self._draft(key, Subset(table), statement, slots)

    def best(self) -> Iterator[Draft]:
        """Yield drafts that ask for columns of the row with the greatest or least number or date."""
        for table in self._subjects():
            orders = list(self._table_columns(table, "number", "date"))
            columns, subset = self._some_columns(table), self._subset(table, all_share=0.7)
            order = self._chosen.choice(orders) if orders else ""
            if not order or not columns or order in columns or subset is None or subset.column in {order, *columns}:
                continue
            column, descending = self._catalog.column(table, order), self._chosen.random() < 0.6
            words = ("max", "min") if column.kind == "number" else ("last", "first")
            most = {**self._words, **self._most_slots(column)}
            slots = self._labels(table, columns)
            slots |= {"most": most[words[0 if descending else 1]], "label2": self._most_slots(column)["label"]}
            first = {"order_by": Output(order), "descending": descending, "limit": 1, "distinct": False}
            yield self._draft("best", subset, subset.statement(*map(Output, columns), **first), slots)

    def sets(self) -> Iterator[Draft]:
        """Yield drafts that ask for rows or values in both of two sets, in either, or not in a set."""
        for table in self._subjects():
            many, repeated = self._many(table), self._repeated(table)
            kind = self._chosen.choice(("both", "without", "either"))
            name = self._tables[table].name
            if kind == "either":
                columns = self._named_columns(table)
                first, second = (self._own(table, number) for number in ("", "2"))
                if columns and first is not None and second is not None and _differ(first, second):
                    statement = Statement(table, tuple(map(Output, columns)), where=(*first.where, *second.where),
                                          any_test=True)  # fmt: skip
                    if len(first.where) == len(second.where) == 1 and not {first.column, second.column} & {*columns}:
                        yield self._both("either", first, second, statement, self._labels(table, columns))
                continue
            path = self._chosen.choice(many) if many and name and self._chosen.random() < 0.5 else None
            column = name if path else self._chosen.choice(repeated) if repeated else None
            if column is None:
                continue
            first, second = (self._linked(table, path, n) if path else self._own(table, n) for n in ("", "2"))
            if first is None or second is None or first.where == second.where:
                continue
            if column in {first.column, second.column} or (kind == "both" and first.column != second.column):
                continue
            output = Output(column)
            if kind == "both":
                combined = "INTERSECT", second.statement(output, distinct=False)
                statement = first.statement(output, distinct=False, combined=combined)
            else:
                statement = Statement(table, (output,), combined=("EXCEPT", first.statement(output, distinct=False)))
            sentence = f"{kind}_row" if path else f"{kind}_value"
            yield self._both(sentence, first, second, statement, self._labels(table, [column]))

    def _both(self, key: str, first: Subset, second: Subset, statement: Statement, slots: Mapping[str, str]) -> Draft:
        phrases, words = {**first.phrases, **second.phrases}, {**first.slots, **second.slots}
        return self._draft(key, replace(first, where=(), phrases=phrases, slots=words), statement, slots)

    def unlinked(self) -> Iterator[Draft]:
        """Yield drafts that ask for rows without a linked row, or for their number."""
        for table in self._subjects():
            many, columns = self._many(table), self._named_columns(table)
            if not many or not columns:
                continue
            path = self._chosen.choice(many)
            inside = Statement(path.joins[0].table, (Output(path.joins[0].column),))
            counts = self._chosen.random() < 0.3
            outputs = (COUNT,) if counts else tuple(map(Output, columns))
            statement = Statement(table, outputs, where=(Comparison(path.key, "NOT IN", inside),))
            slots = self._labels(table, columns) | {"others": path.plural}
            yield self._draft("count_unlinked" if counts else "unlinked", Subset(table), statement, slots)


def _differ(first: Subset, second: Subset) -> bool:
    """Return whether two conditions are different, and neither includes the other, as "over 5" includes "over 9"."""
    forms = [(subset.column, [test.operator for test in subset.where]) for subset in (first, second)]
    return forms[0] != forms[1] or (first.where != second.where and first.where[0].operator in {"=", "LIKE"})
