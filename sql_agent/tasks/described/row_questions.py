"""Questions about one named row, or two: columns, parts of lists, yes or no, comparisons, and what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from sql_agent.schemas import Cell
from sql_agent.tasks.described.catalog import Condition, Row
from sql_agent.tasks.described.drafts import Draft, Drafting
from sql_agent.tasks.described.statement import Comparison, Output, Statement
from sql_agent.tasks.described.words import is_person

# The sentence for each condition of which a question asks whether it is met.
_YES_NO = {"category": "is_value", "list": "is_item", "above": "is_above", "after": "is_after"}


class RowQuestions(Drafting):
    """Yields drafts about named rows, in random order."""

    def lookup(self) -> Iterator[Draft]:
        """Yield questions for one column of a named row."""
        for row, name, column in self._cells():
            if column.ask and (facts := self._catalog.answer(row, name)):
                yield self._about_row("lookup", self._say(column.ask, name=self._name(row)), row, [name], facts)

    def part(self) -> Iterator[Draft]:
        """Yield questions for some items of a list, or for their number."""
        for row, name, column in self._cells("list"):
            items = self._catalog.items(row, name)
            slots = self._slots(column, name=self._name(row))
            if len(items) > 2:
                text = self._sentence("some_items", **slots)
                yield self._about_row("part", text, row, [name], items, enough=2)
            if items:
                text = self._sentence("count_items", **slots)
                yield self._about_row("part", text, row, [name], [str(len(items))])

    def columns(self) -> Iterator[Draft]:
        """Yield questions for two columns of a row."""
        for row, first, column in self._cells("text", "category", "number", "date"):
            others = self._table_columns(row.table, "text", "category", "number", "date")
            second = self._chosen.choice(list(others))
            facts = [self._catalog.answer(row, name) for name in (first, second)]
            if second != first and all(facts):
                label = others[second].label
                text = self._sentence("several", name=self._name(row), label=column.label, label2=label)
                yield self._about_row("columns", text, row, [first, second], [*facts[0], *facts[1]])

    def yes_no(self) -> Iterator[Draft]:
        """Yield yes-no questions about the value of a column in one row; half of the answers are yes."""
        for row, name, column in self._cells("category", "list", "number", "date"):
            wanted = self._chosen.random() < 0.5
            kind = _YES_NO | ({"above": "is_more"} if column.counts else {})
            for condition in self._shuffled(self._on(row.table, name)):
                is_true = all(test.holds(row.values[name]) for test in condition.tests)
                if is_true == wanted and condition.phrase in kind and self._catalog.answer(row, name):
                    slots = self._slots(column, name=self._name(row), value=condition.value)
                    text = self._sentence(kind[condition.phrase], **slots)
                    yield self._about_row("yes_no", text, row, [name], [self._words["yes" if wanted else "no"]])
                    break

    def _on(self, table: str, column: str) -> list[Condition]:
        return [condition for condition in self._catalog.conditions(table) if condition.column == column]

    def comparison(self) -> Iterator[Draft]:
        """Yield questions which of two rows has more, and questions for one column of both."""
        for row, name, column in self._cells("number", "date", "category", "list"):
            other = self._chosen.choice(self._catalog.named(row.table))
            cells = row.values[name], other.values[name]
            slots = self._slots(column, name=self._name(row), other=self._name(other))
            if other is row or None in cells:
                continue
            named, both = row.name_column, (self._is(row), self._is(other))
            if column.kind in {"number", "date"} and cells[0] != cells[1] and self._chosen.random() < 0.7:
                best = max((row, other), key=lambda each: each.values[name])  # type: ignore[arg-type, return-value]
                statement = Statement(
                    row.table, (Output(named),), where=both, any_test=True, order_by=Output(name),
                    descending=True, limit=1,
                )  # fmt: skip
                text = self._sentence("higher" if column.kind == "number" else "later", **slots)
                yield Draft("comparison", text, statement, ((best.values[named],),), (best.name,),
                            best.evidence(named), frozenset({row.key, other.key}))  # fmt: skip
                continue
            answers = [self._catalog.answer(each, name) for each in (row, other)]
            if all(answers) and len({row.name.casefold(), other.name.casefold()}) == 2:
                facts = [
                    f"{each.name}{self._words['colon']}{self._words['comma'].join(answer)}"
                    for each, answer in zip((row, other), answers, strict=True)
                ]
                statement = Statement(row.table, (Output(named), Output(name)), where=both, any_test=True)
                expected = tuple((each.values[named], each.values[name]) for each in (row, other))
                text = self._sentence("both_lists" if column.kind == "list" else "both", **slots)
                yield Draft("comparison", text, statement, expected, tuple(facts),
                            (*row.evidence(name), *other.evidence(name)), frozenset({row.key, other.key}))  # fmt: skip

    def unanswerable(self) -> Iterator[Draft]:
        """Yield questions for an empty cell, about an unknown name, and for a column that does not exist."""
        for row, name, column in self._cells():
            kind, table = self._chosen.choice(("empty", "name", "column")), self._tables[row.table]
            if kind == "empty":
                empty = [each for each in self._catalog.named(row.table) if each.values[name] is None]
                if empty and column.ask:
                    row = self._chosen.choice(empty)  # noqa: PLW2901
                    text = self._say(column.ask, name=self._name(row))
                    yield self._about_row("unanswerable", text, row, [name], [self._words["refusal"]], evidence=False)
            elif kind == "name":
                invented = self._invented(row)
                if invented is not None and column.ask:
                    text = self._say(column.ask, name=self._shown(row.table, str(invented)))
                    where = (Comparison(row.name_column, "=", invented),)
                    yield Draft("unanswerable", text, Statement(row.table, (Output(name),), where=where), (),
                                (self._words["refusal"],), rows=frozenset({(row.table, f"? {invented}")}))  # fmt: skip
            else:
                missing = self._words["missing"]
                others = "other" if self._name(row) == row.name else "numbered"
                label = self._chosen.choice(missing["person" if is_person(table.label) else others])
                if not set(label.split()) & self._known_words:
                    text = self._sentence("unknown_column", label=label, name=self._name(row))
                    where = (self._is(row),)
                    values = tuple(self._catalog.database.tables[row.table].columns)
                    if set(values) == set(row.values):
                        expected = (tuple(row.values[value] for value in values),)
                        yield Draft("unanswerable", text, Statement(row.table, (Output(),), where=where), expected,
                                    (self._words["refusal"],), rows=frozenset({row.key}))  # fmt: skip

    @cached_property
    def _known_words(self) -> set[str]:
        """The words of the labels of all tables, columns and links."""
        columns = [column.label for table in self._tables.values() for column in table.columns.values()]
        links = [link.label for link in self._catalog.description.links]
        return {
            word for label in (*columns, *links, *(t.label for t in self._tables.values())) for word in label.split()
        }

    def _invented(self, row: Row) -> Cell:
        """Return a name like the row's that no row has: halves of two names, or a number beyond all; else None."""
        named = self._tables[row.table].name
        rows = self._catalog.rows[row.table]
        cells = [each.values[named] for each in rows] if named else []
        if all(isinstance(cell, int) for cell in cells):
            return max(int(str(cell)) for cell in cells) + self._chosen.randint(3, 400)
        other = self._chosen.choice(self._catalog.named(row.table)).name
        words = row.name.split(), other.split()
        if min(map(len, words)) > 1:
            invented = " ".join([*words[0][: len(words[0]) // 2], *words[1][len(words[1]) // 2 :]])
        elif not row.name.isascii() and len(row.name) > 2:
            invented = row.name[: len(row.name) // 2] + other[len(other) // 2 :]
        else:
            return None
        known = "\n".join(each.name for each in rows).casefold()
        return None if invented.casefold() in known or row.name.casefold() in invented.casefold() else invented
