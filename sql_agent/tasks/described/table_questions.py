"""Questions about many rows at once: lists, averages, groups and sets, also over linked tables.

What the statement returns is the reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sql_agent.tasks.described.conditions import Condition
from sql_agent.tasks.described.drafts import Draft, Drafting
from sql_agent.tasks.described.link_paths import LinkPath, is_bridge, link_paths
from sql_agent.tasks.described.statement import COUNT, Comparison, Function, Join, Output, Statement
from sql_agent.tasks.described.wording import Wording
from sql_agent.tasks.described.words import filled, is_noun, plural_of, with_article

_TRIES = 4000  # random choices of a type; most of a small database come twice
_FUNCTIONS: tuple[tuple[Function, ...], ...] = (
    *(("AVG",), ("AVG",), ("AVG",), ("MAX",), ("MIN",), ("SUM",), ("SUM",)),
    *(("MIN", "MAX"), ("AVG", "MAX"), ("MIN", "AVG", "MAX")),
)
_SEARCHED = frozenset({"list", "text", "name"})  # conditions on a part of a cell, which searches are about
_KINDS_SHARE = 0.2  # of the aggregates that count different values
_TWO_SHARE = 0.25  # of the conditions of a table that are two
_MOST_LEAST = 12  # of the least numbers in "at least 3 orders"
_NAME_SHARE = 0.5  # of the conditions on a linked row that name it


@dataclass(frozen=True)
class Subset:
    """Rows of a table: all, or those that meet a condition, of their own or of a linked row, and how to say it."""

    table: str
    where: tuple[Comparison, ...] = ()
    joins: tuple[Join, ...] = ()
    column: str = ""
    repeats: bool = False
    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)

    def statement(self, *outputs: Output) -> Statement:
        """Return the statement that reads `outputs` of these rows."""
        return Statement(self.table, outputs, where=self.where, joins=self.joins, distinct=self.repeats)


class TableQuestions(Drafting):
    """Yields drafts about many rows of a table, each a random choice."""

    def listing(self) -> Iterator[Draft]:
        """Yield questions for one to three columns of rows, perhaps sorted, or for the different values of one."""
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
                    statement = replace(subset.statement(Output(column)), distinct=True)
                    yield self._draft("listing", "distinct", subset, statement, self._labels(table, [column]))
            elif kind == "sorted" and (orders := self._orders(table)):
                yield self._sorted(subset, columns, self._chosen.choice(orders))
            elif kind == "linked" and ones:
                path = self._chosen.choice(ones)
                other = self._some_columns(path.table)[:1]
                if other:
                    outputs = (Output(columns[0]), Output(other[0], path.table))
                    statement = Statement(table, outputs, joins=path.joins)
                    slots = self._labels(table, columns[:1]) | {"link": path.label}
                    slots["label2"] = self._labels(path.table, other)["label"]
                    yield self._draft("listing", "list_linked", Subset(table), statement, slots)
            else:
                statement = subset.statement(*map(Output, columns))
                yield self._draft("listing", "list", subset, statement, self._labels(table, columns))

    def _sorted(self, subset: Subset, columns: Sequence[str], order: str) -> Draft:
        column = self._tables[subset.table].columns[order]
        descending = self._chosen.random() < 0.5
        ways = self._words["orders"][
            "number" if column.kind == "number" else "date" if column.kind == "date" else "text"
        ]
        slots = self._labels(subset.table, columns) | {"order": column.label}
        statement = replace(
            subset.statement(*map(Output, columns)), order_by=Output(order), descending=descending, distinct=False
        )
        subset = replace(subset, phrases={**subset.phrases, "direction": tuple(ways[int(descending)])})
        return self._draft("listing", "sorted", subset, statement, slots)

    def aggregate(self) -> Iterator[Draft]:
        """Yield questions for an average, sum, minimum or maximum, and for the number of rows with a linked row."""
        for table in self._subjects():
            numbers = list(self._table_columns(table, "number"))
            subset = self._subset(table, all_share=0.3)
            if subset is None or subset.repeats:
                continue
            repeated = [column for column in self._repeated(table) if column != subset.column]
            if repeated and self._chosen.random() < _KINDS_SHARE:
                column = self._chosen.choice(repeated)
                kinds = subset.statement(Output(column, function="COUNT", distinct=True))
                yield self._draft("aggregate", "count_kinds", subset, kinds, self._labels(table, [column]))
            elif subset.joins and (not numbers or self._chosen.random() < 0.3):
                yield self._draft("aggregate", "count", subset, subset.statement(COUNT), {})
            elif numbers:
                column, functions = self._chosen.choice(numbers), self._chosen.choice(_FUNCTIONS)
                if column != subset.column:
                    outputs = tuple(Output(column, function=function) for function in functions)
                    subset = self._with_functions(subset, functions)
                    slots = self._labels(table, [column])
                    yield self._draft("aggregate", "aggregate", subset, subset.statement(*outputs), slots)

    def per_group(self) -> Iterator[Draft]:
        """Yield questions for a number or an average of each value of a column, or of each row with linked rows."""
        for table in self._subjects():
            repeated, many = self._repeated(table), self._many(table)
            numbers = list(self._table_columns(table, "number"))
            if many and self._chosen.random() < 0.5:
                yield self._per_row(table, self._chosen.choice(many))
            elif repeated:
                column = self._chosen.choice(repeated)
                others = [each for each in numbers if each != column]
                slots = self._labels(table, [column])
                subset, key, output = Subset(table), "per_value", COUNT
                if others and self._chosen.random() < 0.5:
                    function, other = self._chosen.choice(_FUNCTIONS[:7])[0], self._chosen.choice(others)
                    subset, key, output = (
                        self._with_functions(subset, [function]),
                        "function_per_value",
                        Output(other, function=function),
                    )
                    slots["label2"] = self._labels(table, [other])["label"]
                statement = Statement(table, (Output(column), output), group_by=Output(column))
                yield self._draft("per_group", key, subset, statement, slots)

    def _per_row(self, table: str, path: LinkPath) -> Draft:
        name = self._tables[table].name or path.key
        slots = self._labels(table, [name]) | {"others": path.plural}
        subset, key, output = Subset(table), "per_row", COUNT
        numbers = list(self._table_columns(path.table, "number"))
        if numbers and self._chosen.random() < 0.4:
            function, column = self._chosen.choice(_FUNCTIONS[:7])[0], self._chosen.choice(numbers)
            subset, key, output = (
                self._with_functions(subset, [function]),
                "function_per_row",
                Output(column, path.table, function=function),
            )
            slots["label2"] = self._labels(path.table, [column])["label"]
        statement = Statement(table, (Output(name), output), joins=path.joins, group_by=Output(path.key))
        return self._draft("per_group", key, subset, statement, slots)

    def groups(self) -> Iterator[Draft]:
        """Yield questions for the value of most or fewest rows, or of at least some, and rows by their linked rows."""
        for table in self._subjects():
            repeated, many = self._repeated(table), self._many(table)
            joins: tuple[Join, ...] = ()
            columns: list[str] = []
            slots: dict[str, str] = {}
            key = kind = ""
            if many and self._chosen.random() < 0.7:
                path, columns = self._chosen.choice(many), self._some_columns(table, named=True)[:2]
                key, kind, slots, joins = path.key, "row", {"others": path.plural}, path.joins
            elif repeated:
                key, kind = self._chosen.choice(repeated), "value"
                columns = [key]
            if not columns:
                continue
            slots |= self._labels(table, columns)
            how = self._chosen.choice(("most", "most", "fewest", "at_least"))
            least = self._chosen.choice((2, 2, 2, 3, 3, 4, 5, _MOST_LEAST))
            grouped = Statement(table, tuple(map(Output, columns)), joins=joins, group_by=Output(key))
            if how == "at_least":
                statement = replace(grouped, more_than=least - 1)
            else:
                statement = replace(grouped, order_by=COUNT, descending=how == "most", limit=1)
            sentence = f"{how}_of_{kind}"
            yield self._draft("groups", sentence, Subset(table), statement, {**slots, "number": str(least)})

    def average(self) -> Iterator[Draft]:
        """Yield questions for rows with a number above or below the average."""
        for table in self._subjects():
            numbers, columns = list(self._table_columns(table, "number")), self._some_columns(table, named=True)[:2]
            column = self._chosen.choice(numbers) if numbers else ""
            if not column or not columns or column in columns:
                continue
            mean = Statement(table, (Output(column, function="AVG"),))
            above = self._chosen.random() < 0.6
            test = Comparison(column, ">" if above else "<", mean)
            slots = self._labels(table, columns) | {"label2": self._tables[table].columns[column].label}
            statement = Statement(table, tuple(map(Output, columns)), where=(test,))
            key = "above_average" if above else "below_average"
            yield self._draft("average", key, Subset(table), statement, slots)

    def best(self) -> Iterator[Draft]:
        """Yield questions for columns of the row with the most or least of a number, or the first or last date."""
        for table in self._subjects():
            orders = list(self._table_columns(table, "number", "date"))
            columns, subset = self._some_columns(table), self._subset(table, all_share=0.7)
            order = self._chosen.choice(orders) if orders else ""
            if not order or not columns or order in columns or subset is None or subset.column in {order, *columns}:
                continue
            column, descending = self._tables[table].columns[order], self._chosen.random() < 0.6
            words = ("max", "min") if column.kind == "number" else ("last", "first")
            most = {**self._words, **self._most_slots(column)}
            slots = self._labels(table, columns) | {
                "most": most[words[0 if descending else 1]],
                "label2": self._most_slots(column)["label"],
            }
            statement = replace(
                subset.statement(*map(Output, columns)), order_by=Output(order), descending=descending, limit=1,
                distinct=False,
            )  # fmt: skip
            yield self._draft("best", "best", subset, statement, slots)

    def sets(self) -> Iterator[Draft]:
        """Yield questions for what is in two sets of rows, in one and not in the other, or in either."""
        for table in self._subjects():
            many, repeated = self._many(table), self._repeated(table)
            kind = self._chosen.choice(("both", "without", "either"))
            name = self._tables[table].name
            if kind == "either":
                columns = self._some_columns(table, named=True)[:2]
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
            pair = [self._linked(table, path, n) if path else self._own(table, n) for n in ("", "2")]
            first, second = pair
            if (
                first is None
                or second is None
                or first.where == second.where
                or column in {first.column, second.column}
            ):
                continue
            kind_of = f"{kind}_row" if path else f"{kind}_value"
            output = Output(column)
            if kind == "both":
                if first.column != second.column:
                    continue
                other = replace(second.statement(output), distinct=False)
                statement = replace(first.statement(output), distinct=False, combined=("INTERSECT", other))
            else:
                other = replace(first.statement(output), distinct=False)
                statement = Statement(table, (output,), combined=("EXCEPT", other))
            yield self._both(kind_of, first, second, statement, self._labels(table, [column]))

    def _both(self, key: str, first: Subset, second: Subset, statement: Statement, slots: Mapping[str, str]) -> Draft:
        phrases, words = {**first.phrases, **second.phrases}, {**first.slots, **second.slots}
        subset = replace(first, where=(), phrases=phrases, slots=words)
        return self._draft("sets", key, subset, statement, slots)

    def unlinked(self) -> Iterator[Draft]:
        """Yield questions for rows without a linked row, and for their number."""
        for table in self._subjects():
            many, columns = self._many(table), self._some_columns(table, named=True)[:2]
            if not many or not columns:
                continue
            path = self._chosen.choice(many)
            inside = Statement(path.joins[0].table, (Output(path.joins[0].column),))
            counts = self._chosen.random() < 0.3
            outputs = (COUNT,) if counts else tuple(map(Output, columns))
            statement = Statement(table, outputs, where=(Comparison(path.key, "NOT IN", inside),))
            slots = self._labels(table, columns) | {"others": path.plural}
            yield self._draft("unlinked", "count_unlinked" if counts else "unlinked", Subset(table), statement, slots)

    def _draft(self, task_type: str, key: str, subset: Subset, statement: Statement, slots: Mapping[str, str]) -> Draft:
        sentences = self._words["sentences"]
        templates = sentences[f"{key}_with"] if subset.where and f"{key}_with" in sentences else sentences[key]
        table = self._table_slots(subset.table)
        wording = Wording(tuple(templates), {**subset.slots, **table, **slots}, subset.phrases)
        return Draft(task_type, wording, (statement,), (), (), from_rows=True)

    def _subjects(self) -> Iterator[str]:
        """Yield a random table again and again, but none that only links others."""
        bridges = [name for name in self._tables if is_bridge(self._catalog.description, name)]
        asked = {name for name in bridges if is_noun(self._tables[name].label) and self._table_columns(name)}
        tables = [name for name in self._tables if name not in bridges or name in asked]
        weights = [1 + len(self._paths(table)) + len(self._table_columns(table)) / 4 for table in tables]
        for _ in range(_TRIES if tables else 0):
            yield self._chosen.choices(tables, weights)[0]

    def _paths(self, table: str) -> list[LinkPath]:
        return link_paths(self._catalog.description, table)

    def _many(self, table: str) -> list[LinkPath]:
        return [path for path in self._paths(table) if path.many] if self._tables[table].name else []

    def _subset(self, table: str, *, all_share: float) -> Subset | None:
        """Return all rows or some random ones."""
        if self._chosen.random() < all_share:
            return Subset(table)
        paths = self._paths(table)
        if paths and self._chosen.random() < 0.55:
            return self._linked(table, self._chosen.choice(paths))
        first, second = self._own(table), self._own(table, "2")
        if first is None or second is None or first.column == second.column or self._chosen.random() >= _TWO_SHARE:
            return first
        ways = (first.phrases["with"][0], second.phrases["with2"][0])
        phrases = {"with": (self._words["and_with"].join(ways),)}
        return replace(
            first, where=(*first.where, *second.where), phrases=phrases, slots={**first.slots, **second.slots}
        )

    def _own(self, table: str, number: str = "") -> Subset | None:
        """Return the rows that meet a condition; `number` "2" says that it is the second one of a question."""
        conditions = [each for each in self._catalog.conditions(table) if each.phrase not in _SEARCHED]
        if not conditions:
            return None
        condition = self._of_a_random_column(conditions)
        slots = {f"value{number}": condition.value}
        phrases = {key: ways for key, ways in self._phrases(table, condition, number).items() if "with" in key}
        return Subset(table, condition.tests, (), condition.column, phrases=phrases, slots=slots)

    def _linked(self, table: str, path: LinkPath, number: str = "") -> Subset | None:
        """Return the rows with a linked row that meets a condition, or that has a name."""
        other, value = self._tables[path.table], f"value{number}"
        words = {"link": path.label, "a_link": with_article(path.label), "value": f"{{{value}}}"}
        named = self._catalog.named(path.table)
        if named and self._chosen.random() < _NAME_SHARE:
            row = self._chosen.choice(named)
            tests: tuple[Comparison, ...] = (self._is(row, path.table),)
            ways = [filled(way, **words) for way in self._words["linked"]["many_named" if path.many else "named"]]
            phrases = {f"with{number}": tuple(ways)}
            return Subset(
                table, tests, path.joins, f"{path.table}.{other.name}", phrases=phrases, slots={value: row.name}
            )
        own = self._own(path.table, number)
        if own is None:
            return None
        ways = [
            filled(way, **words, inner=inner)
            for way in self._words["linked"]["many" if path.many else "one"]
            for inner in own.phrases[f"with{number}"]
        ]
        tests = tuple(replace(test, table=path.table) for test in own.where)
        return Subset(table, tests, path.joins, f"{path.table}.{own.column}", path.many, {f"with{number}": tuple(ways)},
                      own.slots)  # fmt: skip

    def _of_a_random_column(self, conditions: Sequence[Condition]) -> Condition:
        column = self._chosen.choice(sorted({condition.column for condition in conditions}))
        return self._chosen.choice([condition for condition in conditions if condition.column == column])

    def _some_columns(self, table: str, *, named: bool = False) -> list[str]:
        """Return one to three random columns; with `named` the first is the column that names rows."""
        columns = list(self._table_columns(table, "name", "text", "category", "number", "date"))
        name = self._tables[table].name
        keys = [link.target[1] for link in self._catalog.description.links if link.target[0] == table]
        columns += [key for key in dict.fromkeys([*([name] if name else []), *keys]) if key not in columns]
        chosen = self._chosen.sample(columns, min(len(columns), self._chosen.choice((1, 1, 1, 2, 2, 3))))
        if named and name is not None:
            return [name, *(column for column in chosen if column != name)]
        if name in chosen:
            chosen.sort(key=lambda column: column != name)
        return [] if named else chosen

    def _repeated(self, table: str) -> list[str]:
        """Return the columns of which several rows have the same value."""
        found = []
        for name in self._table_columns(table, "category", "number"):
            cells = self._catalog.database.tables[table].cells(name)
            if 1 < len(set(cells)) <= len(cells) / 2:
                found.append(name)
        return found

    def _orders(self, table: str) -> list[str]:
        return list(self._table_columns(table, "number", "date", "name"))

    def _labels(self, table: str, columns: Sequence[str]) -> dict[str, str]:
        """Return the words for columns: "name and age", and "names and ages"."""
        described = [self._tables[table].columns[column] for column in columns]
        labels = [column.label for column in described]
        english = self._catalog.description.lang == "en"
        plurals = [column.plural or plural_of(column.label) for column in described] if english else labels
        return {"label": self._listed(labels), "labels": self._listed(plurals), "a_label": with_article(labels[0])}

    def _listed(self, texts: Sequence[str]) -> str:
        """Return "a, b and c"."""
        *first, last = texts
        comma = self._words["comma"]
        return f"{comma.join(first)}{self._words['and']}{last}" if first else last

    def _with_functions(self, subset: Subset, functions: Sequence[Function]) -> Subset:
        """Return the subset with the words for functions: "average", or "minimum and maximum"."""
        words: Mapping[str, Sequence[str]] = self._words["functions"]
        several = len(functions) > 1
        ways = [self._listed([words[each][0] for each in functions])] if several else words[functions[0]]
        slots = {**subset.slots, "is": self._words["are" if several else "is"]}
        return replace(subset, phrases={**subset.phrases, "function": tuple(ways)}, slots=slots)


def _differ(first: Subset, second: Subset) -> bool:
    """Return whether two conditions ask for different rows, not one for a part of the other's."""
    asked = [(subset.column, [test.operator for test in subset.where]) for subset in (first, second)]
    return asked[0] != asked[1] or (first.where != second.where and first.where[0].operator in {"=", "LIKE"})
