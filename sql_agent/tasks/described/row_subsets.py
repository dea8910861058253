"""Choose random subsets of a table's rows for questions, and find the joins to linked tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sql_agent.tasks.described.conditions import Condition
from sql_agent.tasks.described.description import Description
from sql_agent.tasks.described.drafts import Draft, Drafting
from sql_agent.tasks.described.statement import Comparison, Function, Join, Output, Statement
from sql_agent.tasks.described.words import Wording, filled, is_noun, plural_of, with_article

_TRIES = 4000  # maximum number of random choices for a type of question
_SEARCHED = frozenset({"list", "text", "name"})  # phrases of conditions on a part of a cell, which are not used here
_TWO_SHARE = 0.25  # share of the subsets by columns of the table itself that have two conditions
_NAME_SHARE = 0.5  # share of the subsets by a linked row that name the linked row


@dataclass(frozen=True)
class Subset:
    """All rows of a table, or the rows that meet a condition on themselves or on a linked row.

    `column` is the tested column, and `phrases` and `slots` are words for the condition. `repeats` is whether the joins
    repeat rows.
    """

    table: str
    where: tuple[Comparison, ...] = ()
    joins: tuple[Join, ...] = ()
    column: str = ""
    repeats: bool = False
    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slots: Mapping[str, str] = field(default_factory=dict)

    def statement(self, *outputs: Output, **more: Any) -> Statement:
        """Return the statement that reads `outputs` of these rows; `more` are other fields of the statement."""
        return Statement(self.table, outputs, self.where, joins=self.joins, **{"distinct": self.repeats, **more})


@dataclass(frozen=True)
class LinkPath:
    """The joins from a first table to a linked `table`. `many` is whether a row may be linked to several rows."""

    table: str
    label: str
    plural: str
    joins: tuple[Join, ...]
    many: bool

    @property
    def key(self) -> str:
        """The column of the first table by which its rows are linked."""
        return self.joins[0].to


def is_bridge(description: Description, table: str) -> bool:
    """Return whether a table without names only links rows of other tables, as "lives in" does."""
    linked = {link.target[0] for link in description.links if link.source[0] == table and not link.contains}
    return description.tables[table].name is None and len(linked) > 1


def _paths(description: Description, table: str) -> Iterator[LinkPath]:
    """Yield all paths from `table` along one link, or along two links through a table that only links others."""
    tables, links = description.tables, [link for link in description.links if not link.contains]

    def plural(label: str, other: str) -> str:
        if label == tables[other].label:
            return tables[other].plural
        return label if description.lang == "zh" else plural_of(label)

    for link in links:
        (source, column), (target, key) = link.source, link.target
        if source == table:
            yield LinkPath(target, link.label, plural(link.label, target), (Join(target, key, column),), many=False)
        elif target == table and not is_bridge(description, source):
            of = tables[source]
            yield LinkPath(source, of.label, of.plural, (Join(source, column, key),), many=True)
        elif target == table:
            first = Join(source, column, key)
            for other in (each for each in links if each.source[0] == source and each.target[0] != table):
                (far, far_key), label = other.target, other.label
                second = Join(far, far_key, other.source[1], of=source)
                yield LinkPath(far, label, plural(label, far), (first, second), many=True)


class SubsetDrafting(Drafting):
    """The base class for questions about many rows: chooses tables, columns and subsets, and the words for them."""

    def _draft(self, key: str, subset: Subset, statement: Statement, slots: Mapping[str, str]) -> Draft:
        sentences = self._words["sentences"]
        templates = sentences[f"{key}_with"] if subset.where and f"{key}_with" in sentences else sentences[key]
        table = self._table_slots(subset.table)
        wording = Wording(tuple(templates), {**subset.slots, **table, **slots}, subset.phrases)
        return Draft(wording, (statement,), from_rows=True)

    def _subjects(self) -> Iterator[str]:
        """Yield random tables, repeatedly. A bridge must have a noun as label, and a column besides names and ids."""
        tables = [
            name
            for name, table in self._tables.items()
            if not is_bridge(self._catalog.description, name) or (is_noun(table.label) and self._table_columns(name))
        ]
        weights = [1 + len(self._paths(table)) + len(self._table_columns(table)) / 4 for table in tables]
        for _ in range(_TRIES if tables else 0):
            yield self._chosen.choices(tables, weights)[0]

    def _paths(self, table: str) -> list[LinkPath]:
        """Return the paths from `table` to other tables, without paths that share their end or their label."""
        found = [path for path in _paths(self._catalog.description, table) if path.table != table]
        ways = Counter((path.table, path.many) for path in found)
        labels = Counter(path.label for path in found)
        return [path for path in found if ways[path.table, path.many] == labels[path.label] == 1]

    def _many(self, table: str) -> list[LinkPath]:
        return [path for path in self._paths(table) if path.many] if self._tables[table].name else []

    def _subset(self, table: str, *, all_share: float) -> Subset | None:
        """Return all rows, with the probability `all_share`, or a random subset; None if there is no condition."""
        if self._chosen.random() < all_share:
            return Subset(table)
        paths = self._paths(table)
        if paths and self._chosen.random() < 0.55:
            return self._linked(table, self._chosen.choice(paths))
        first, second = self._own(table), self._own(table, "2")
        if first is None or second is None or first.column == second.column or self._chosen.random() >= _TWO_SHARE:
            return first
        both = self._words["and_with"].join((first.phrases["with"][0], second.phrases["with2"][0]))
        where, slots = (*first.where, *second.where), {**first.slots, **second.slots}
        return replace(first, where=where, phrases={"with": (both,)}, slots=slots)

    def _own(self, table: str, number: str = "") -> Subset | None:
        """Return the rows that meet a random condition; `number` is "2" for the second condition of a question."""
        by_column = self._whole_cells(table)
        condition = self._chosen.choice(self._chosen.choice(by_column)) if by_column else None
        if condition is None or len(self._catalog.matching(table, *condition.tests)) < 2:  # a code names one row
            return None
        slots = {f"value{number}": condition.value}
        phrases = {key: ways for key, ways in self._phrases(table, condition, number).items() if "with" in key}
        return Subset(table, condition.tests, (), condition.column, phrases=phrases, slots=slots)

    def _linked(self, table: str, path: LinkPath, number: str = "") -> Subset | None:
        """Return the rows whose linked row meets a random condition, or has a random name."""
        with_, value = f"with{number}", f"value{number}"
        words = {"link": path.label, "a_link": with_article(path.label), "value": f"{{{value}}}"}
        named = self._catalog.named(path.table)
        if named and self._chosen.random() < _NAME_SHARE:
            row = self._chosen.choice(named)
            ways = tuple(filled(way, **words) for way in self._words["linked"]["many_named" if path.many else "named"])
            column, test = f"{path.table}.{row.name_column}", self._is(row, path.table)
            return Subset(table, (test,), path.joins, column, phrases={with_: ways}, slots={value: row.name})
        own = self._own(path.table, number)
        if own is None:
            return None
        ways = tuple(
            filled(way, **words, inner=inner)
            for way in self._words["linked"]["many" if path.many else "one"]
            for inner in own.phrases[with_]
        )
        column, where = f"{path.table}.{own.column}", tuple(replace(test, table=path.table) for test in own.where)
        return Subset(table, where, path.joins, column, path.many, {with_: ways}, own.slots)

    @cache
    def _whole_cells(self, table: str) -> list[list[Condition]]:
        """Return the conditions on whole cells, by column."""
        by_column = (self._catalog.conditions_on(table, name) for name in sorted(self._tables[table].columns))
        wanted = ([each for each in found if each.phrase not in _SEARCHED] for found in by_column)
        return list(filter(None, wanted))

    def _some_columns(self, table: str) -> list[str]:
        """Return one to three random columns; the column with the names of rows comes first."""
        columns = list(self._table_columns(table, "name", "text", "category", "number", "date"))
        name = self._tables[table].name
        keys = [link.target[1] for link in self._catalog.description.links if link.target[0] == table]
        columns += [key for key in dict.fromkeys([*([name] if name else []), *keys]) if key not in columns]
        chosen = self._chosen.sample(columns, min(len(columns), self._chosen.choice((1, 1, 1, 2, 2, 3))))
        return sorted(chosen, key=lambda column: column != name)

    def _named_columns(self, table: str) -> list[str]:
        """Return the column with the names of rows, and perhaps one random column; [] if rows have no names."""
        name, columns = self._tables[table].name, self._some_columns(table)
        return [] if name is None else [name, *(column for column in columns if column != name)][:2]

    @cache
    def _repeated(self, table: str) -> list[str]:
        """Return the columns with two or more distinct values that are each in two rows or more on average."""
        found = []
        for name in self._table_columns(table, "category", "number"):
            cells = self._catalog.database.tables[table].cells(name)
            if 1 < len(set(cells)) <= len(cells) / 2:
                found.append(name)
        return found

    def _labels(self, table: str, columns: Sequence[str]) -> dict[str, str]:
        """Return the labels of columns as slots: "name and age", "names and ages", "a name"."""
        described = [self._spoken(self._catalog.column(table, column)) for column in columns]
        labels = [column.label for column in described]
        english = self._catalog.description.lang == "en"
        plurals = [column.plural or plural_of(column.label) for column in described] if english else labels
        return {"label": self._listed(labels), "labels": self._listed(plurals), "a_label": with_article(labels[0])}

    def _listed(self, texts: Sequence[str]) -> str:
        *first, last = texts
        comma = self._words["comma"]
        return f"{comma.join(first)}{self._words['and']}{last}" if first else last

    def _with_functions(self, subset: Subset, functions: Sequence[Function]) -> Subset:
        """Return the subset with the words for aggregate functions, such as "average" or "minimum and maximum"."""
        words: Mapping[str, Sequence[str]] = self._words["functions"]
        several = len(functions) > 1
        ways = [self._listed([words[each][0] for each in functions])] if several else words[functions[0]]
        slots = {**subset.slots, "is": self._words["are" if several else "is"]}
        return replace(subset, phrases={**subset.phrases, "function": tuple(ways)}, slots=slots)
