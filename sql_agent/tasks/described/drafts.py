"""Drafts, which are questions that are not yet worded and verified, and the base class of question types."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sql_agent.schemas import Cell, Evidence
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.conditions import Condition
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import Column
from sql_agent.tasks.described.statement import Comparison, Output, Statement
from sql_agent.tasks.described.words import Wording, filled, plural_of, with_article

MOST_ROWS = 8  # maximum number of rows that an answer lists
MOST_READ = 800  # maximum number of characters of several columns in one result
MOST_COUNTED = 10  # maximum number of counted rows that are evidence
_MANY_WORDINGS = 4
_LABEL_SHARE = 0.5  # share of the questions about a column with `also` that say the column's label
_LONG_SHARE = 0.4  # share of the rows that are the one with the longest of four cells, where people ask for such cells
Key = tuple[str, str]
_Item = TypeVar("_Item")
_Phrases = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Draft:
    """A question that is not yet worded and verified.

    statements  the statements in order; the last one reads the answer
    expected    the rows that the last statement must return, in any order unless the statement has an ORDER BY
    facts       the facts of the reference; `enough` of them are a full answer
    rows        the keys of the rows that the question is about; all of them must be in one split
    subject     the row that the question names as {name}
    conditions  one or two conditions; the question names their values as {value} and {value2}
    from_rows   whether the result of the statement will replace `expected` and `facts`
    task_type   the type of question, which is the name of the method that yields the draft
    """

    wording: Wording
    statements: tuple[Statement, ...]
    expected: tuple[tuple[Cell, ...], ...] = ()
    facts: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    rows: frozenset[Key] = frozenset()
    enough: int | None = None
    subject: Row | None = None
    conditions: tuple[Condition, ...] = ()
    from_rows: bool = False
    task_type: str = ""

    @property
    def statement(self) -> Statement:
        return self.statements[-1]


class Drafting:
    """The base class of question types: makes drafts from rows and conditions that the random source `chosen` draws."""

    def __init__(self, catalog: Catalog, chosen: random.Random) -> None:
        self._catalog, self._chosen = catalog, chosen
        self._tables = catalog.description.tables
        self._words = catalog.words

    def _reading(
        self,
        wording: Wording,
        statements: Sequence[Statement],
        found: Sequence[Row],
        facts: Iterable[str] | None = None,
        *,
        also: Iterable[Row] = (),
        evidence: bool = True,
        **more: Any,
    ) -> Draft:
        """Return a draft whose last statement reads cells of the rows `found`. The question is about `also`, too.

        `facts` are by default the names of `found`. The evidence is the cells that the statement reads, without the
        names if it also reads other columns. `more` are other fields of the draft.
        """
        columns = [output.column for output in statements[-1].outputs]
        asked = [column for column in columns if len(columns) == 1 or column != found[0].name_column]
        return Draft(
            wording,
            tuple(statements),
            tuple(tuple(row.values[column] for column in columns) for row in found),
            tuple(row.name for row in found) if facts is None else tuple(facts),
            tuple(item for row in found for column in asked for item in row.evidence(column)) if evidence else (),
            frozenset(row.key for row in (*found, *also)),
            **more,
        )

    def _about_row(
        self, wording: Wording, row: Row, columns: Sequence[str], facts: Iterable[str], **more: Any
    ) -> Draft:
        statement = Statement(row.table, tuple(map(Output, columns)), where=(self._is(row),))
        return self._reading(wording, [statement], [row], facts, subject=row, **more)

    @staticmethod
    def _is(row: Row, table: str = "") -> Comparison:
        return Comparison(row.name_column, "=", row.values[row.name_column], table)

    def _names(
        self,
        wording: Wording,
        table: str,
        found: Sequence[Row],
        tests: tuple[Comparison, ...],
        *conditions: Condition,
        enough: int | None = None,
        any_test: bool = False,
    ) -> Iterator[Draft]:
        """Yield a draft that asks for the names of the rows `found`, if the rows are few and all have a name."""
        name, most = self._tables[table].name, MOST_ROWS if enough is None else MOST_COUNTED
        if name is not None and 0 < len(found) <= most and all(row.named for row in found):
            statement = Statement(table, (Output(name),), where=tests, any_test=any_test)
            yield self._reading(wording, [statement], found, enough=enough, conditions=conditions)

    def _by_name(self, rows: Sequence[Row], answers: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """Return the facts of one row, or "name: facts" of each of several rows."""
        if len(rows) == 1:
            return tuple(answers[0])
        return tuple(self._catalog.fact(row.name, answer) for row, answer in zip(rows, answers, strict=True))

    def _number(
        self,
        wording: Wording,
        statement: Statement,
        number: int,
        *,
        counted: Sequence[tuple[Row, str]] = (),
        rows: Iterable[Key] = (),
        conditions: tuple[Condition, ...] = (),
    ) -> Draft:
        """Return a draft with the answer `number`. The `counted` cells (row, column) are evidence if they are few."""
        few = 0 < len(counted) <= MOST_COUNTED
        cells = tuple(item for row, column in counted for item in row.evidence(column)) if few else ()
        keys = frozenset({*rows, *(row.key for row, _ in counted if few)})
        evidence = cells if len(cells) == len(counted) else ()
        return Draft(wording, (statement,), ((number,),), (str(number),), evidence, keys, conditions=conditions)

    def _cells(self, task_type: str, *kinds: str) -> Iterator[tuple[Row, str, Column]]:
        """Yield (row, column name, column) at random, with repetition.

        The row is one that questions can name, the column one of `kinds` that questions of `task_type` can ask for.
        """
        by_table = {table: rows for table in self._tables if (rows := self._catalog.named(table))}
        columns = {t: [c for c in self._table_columns(t, *kinds) if self._is_wanted(task_type, t, c)] for t in by_table}
        tables = [table for table in by_table if columns[table]]
        # A table's probability is the square root of its size, so that small tables are asked about too.
        weights = [len(by_table[table]) ** 0.5 for table in tables]
        # Otherwise the rows of a column with few filled cells would be asked about too often.
        asked = self._catalog.column
        shares = {
            t: [asked(t, c).share * (1 + len(self._catalog.filled_rows(t, c))) ** 0.25 for c in columns[t]]
            for t in tables
        }
        for _ in range(20 * sum(map(len, by_table.values())) if tables else 0):
            table = self._chosen.choices(tables, weights)[0]
            name = self._chosen.choices(columns[table], shares[table])[0]
            # Most rows of a real table have few columns filled.
            rows, column = self._catalog.filled_rows(table, name) or by_table[table], self._catalog.column(table, name)
            some = [self._chosen.choice(rows)]
            if column.share > 1 and self._chosen.random() < _LONG_SHARE:
                some += [self._chosen.choice(rows) for _ in range(3)]
            yield max(some, key=lambda row: len(str(row.values[name]))), name, column

    def _table_columns(self, table: str, *kinds: str) -> dict[str, Column]:
        columns = self._tables[table].columns
        return {n: c for n, c in columns.items() if c.kind in kinds or (not kinds and c.kind not in {"id", "name"})}

    def _is_wanted(self, task_type: str, table: str, column: str) -> bool:
        """Return whether people ask about a column in questions of a type."""
        return column in self._tables[table].asked.get(task_type, (column,))

    def _beside(self, task_type: str, table: str, column: str) -> list[str] | None:
        """Return the columns that people ask about after `column`; None if the description does not say."""
        pairs = self._tables[table].pairs.get(task_type)
        return None if pairs is None else [second for first, second in pairs if first == column]

    def _conditions(self, task_type: str, least: int = 1) -> list[tuple[str, Condition]]:
        """Return (table, condition) for a question type in random order, but with the columns mixed at the start.

        The conditions on a column that has fewer than `least` are repeated.
        """
        by_column: dict[tuple[str, str], list[Condition]] = {}
        for table in self._tables:
            for condition in self._catalog.conditions(table):
                if self._is_wanted(task_type, table, condition.column):
                    by_column.setdefault((table, condition.column), []).append(condition)
        places = [
            ((number + self._chosen.random()) / len(conditions) ** 0.5, table, condition)
            for (table, _), conditions in by_column.items()
            for number, condition in enumerate(self._shuffled(conditions * -(-least // len(conditions))))
        ]
        return [(table, condition) for _, table, condition in sorted(places, key=lambda place: place[0])]

    def _other(self, task_type: str, table: str, first: Condition) -> Condition | None:
        """Return a second condition or None; if possible, at least one row meets both `first` and the second."""
        rows, by_word = self._catalog.having(table, first), self._catalog.conditions_by_word(table)
        beside = self._beside(task_type, table, first.column)
        if rows and by_word:
            row = self._chosen.choice(rows)
            columns = [c for c in self._table_columns(table, "list", "text") if c != first.column]
            for column in self._shuffled(columns if beside is None else beside):
                words = [
                    word
                    for word in self._catalog.words_of(row, column)
                    if (column, word) in by_word and word not in first.value and first.value not in word
                ]
                found = [by_word[column, word] for word in words]
                found += [
                    condition
                    for condition in self._catalog.conditions_on(table, column)
                    if condition.phrase == "category" and row.place in self._catalog.places(table, condition)
                ]
                if found:
                    return self._chosen.choice(found)
        others = self._catalog.conditions(table, without=first.column)
        return self._chosen.choice(others) if others and beside is None else None

    def _name(self, row: Row) -> str:
        return self._shown(row.table, row.name)

    def _shown(self, table: str, name: str) -> str:
        """Return a row as a question names it: "order 17" if the name is a number or a code."""
        described = self._tables[table]
        if described.name is not None and described.columns[described.name].kind == "name":
            return name
        return filled(self._words["row"], table=described.label, name=name)

    def _spoken(self, column: Column) -> Column:
        """Return the column as a question calls it: half of the time its label is replaced by one of `also`."""
        if not column.also or self._chosen.random() < _LABEL_SHARE:
            return column
        label, english = self._chosen.choice(column.also), self._catalog.description.lang == "en"
        return column.model_copy(
            update={"label": label, "plural": plural_of(label) if english and column.plural else ""}
        )

    def _slots(self, column: Column, **slots: str) -> dict[str, str]:
        if "value" in slots and column.unit and column.kind == "number":
            slots["value"] = slots["value"].removesuffix(column.unit).strip() + f" {column.unit}"
        much = {word: self._words[word] for word in ("max", "min", "more")}
        column = self._spoken(column)
        labels = {"label": column.label, "labels": column.labels, "a_label": with_article(column.label)}
        return {**much, **labels, **slots}

    def _most_slots(self, column: Column) -> dict[str, str]:
        """Return the words of a superlative: "the highest price", or "the most beds" if the column is a count."""
        if not column.counts:
            return self._slots(column)
        words = {"max": self._words["max_count"], "min": self._words["min_count"], "label": column.labels}
        return {**self._slots(column.model_copy(update={"also": ()})), **words}

    def _table_slots(self, table: str) -> dict[str, str]:
        return {"table": self._tables[table].label, "plural": self._tables[table].plural}

    def _phrases(self, table: str, condition: Condition, number: str = "") -> _Phrases:
        """Return the phrases `with`, `do` and `dont` of a condition; `number` is "2" for a second condition."""
        column = self._catalog.column(table, condition.column)
        slots = {**self._slots(column), "top": condition.top}
        if number:
            slots["value"] = f"{{value{number}}}"
        counted = {"above": "more", "below": "fewer", "between": "from"} if column.counts else {}
        conditions = self._words["conditions"]
        plain = conditions.get(counted.get(condition.phrase), conditions[condition.phrase])
        phrases: dict[str, tuple[str, ...]] = {slot: (phrase,) for slot, phrase in plain.items()}
        if column.has and condition.phrase in {"list", "text", "name", "category"}:
            phrases["do"] = column.has
            phrases["with"] = tuple(filled(self._words["that"], has=has) for has in column.has)
            phrases["dont"] = column.lacks or phrases.get("dont", ())
        elif condition.phrase == "category" and self._catalog.needs_no_label(condition.value):
            phrases = {k: (*v, *conditions["unlabelled"].get(k, ())) for k, v in phrases.items()}
        return {
            f"{slot}{number}": tuple(filled(way, **slots) for way in ways) for slot, ways in phrases.items() if ways
        }

    def _condition_wording(
        self, templates: Sequence[str], table: str, first: Condition, second: Condition | None = None
    ) -> Wording:
        slots = {**self._slots(self._catalog.column(table, first.column)), **self._table_slots(table)}
        slots |= {"value": first.value, "top": first.top}
        phrases = self._phrases(table, first)
        if second is not None:
            phrases = {**phrases, **self._phrases(table, second, "2")}
            slots["value2"] = second.value
        return Wording(tuple(templates), slots, phrases)

    def _sentence(self, key: str, **slots: str) -> Wording:
        return self._say(self._words["sentences"][key], **slots)

    @staticmethod
    def _say(templates: Sequence[str], **slots: str) -> Wording:
        return Wording(tuple(templates), slots, {})

    def _either(self, own: Sequence[str], key: str) -> tuple[str, ...]:
        """Return a column's own wordings. If they are few, the general sentences `key`, with its label, come first."""
        return tuple(own) if len(own) >= _MANY_WORDINGS else (*self._words["sentences"][key], *own)

    def _shuffled(self, items: Iterable[_Item]) -> list[_Item]:
        found = list(items)
        self._chosen.shuffle(found)
        return found


def few_with_one_fact(drafts: Iterable[Draft]) -> Iterator[Draft]:
    """Yield the drafts, but of those with one fact at most every other, as long as there are drafts with several.

    A model trained mostly on answers with one item gives one where several are right.
    """
    single: list[Draft] = []
    follows_several = False
    for draft in drafts:
        if len(draft.facts) == 1 and not follows_several:
            single.append(draft)
            continue
        follows_several = len(draft.facts) > 1
        yield draft
    yield from single
