"""Questions about rows of two linked tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import Link
from sql_agent.tasks.described.drafts import MOST_ROWS, Draft, Drafting
from sql_agent.tasks.described.statement import COUNT, Join, Output, Statement
from sql_agent.tasks.described.words import is_noun, is_person

_MOST_COLUMNS = 4  # maximum number of drafts about the same linked rows, each about another column


class LinkQuestions(Drafting):
    def linked(self) -> Iterator[Draft]:
        """Yield drafts that ask for a column of the row to which a named row refers."""
        for link, row, (target,) in self._pairs(contains=False):
            other = self._tables[target.table]
            choices = [column for column, of in other.columns.items() if of.kind != "id" or column == other.name]
            column = self._chosen.choice(choices) if choices else None
            if column is None or not (facts := self._catalog.facts(target, column)):
                continue
            described = other.columns[column]
            slots = self._slots(described, name=self._name(row), link=link.label)
            plain = "link_person" if is_person(other.label) else "link_name"
            if column != other.name:
                if described.kind == "flag":
                    continue
                slots["label"], plain = described.cell_label, "of_linked"
            wording = self._say(self._either(link.ask.get(column, ()), plain), **slots)
            outputs = (Output(column, target.table),)
            statement = Statement(row.table, outputs, where=(self._is(row),), joins=self._joins(link))
            yield self._reading(wording, [statement], [target], facts, also=[row], subject=row)

    def two_hops(self) -> Iterator[Draft]:
        """Yield drafts that first read a text of a named row, then a column of the rows that this text names."""
        for link, row, targets in self._pairs(contains=True):
            other = self._tables[link.target[0]]
            choices = [name for name, column in other.columns.items() if name != other.name and column.kind != "flag"]
            if (
                len(targets) > link.most
                or not all(target.named for target in targets)
                or self._has_more(link, row, targets)
            ):
                continue
            first, several = Statement(row.table, (Output(link.source[1]),), where=(self._is(row),)), len(targets) > 1
            answers = {c: [self._catalog.facts(t, c) for t in targets] for c in self._shuffled(link.ask or choices)}
            for column in islice((c for c in answers if all(answers[c])), _MOST_COLUMNS):
                described = other.columns[column]
                slots = self._slots(described, name=self._name(row), link=link.label) | {"label": described.labels}
                outputs = (*([Output(targets[0].name_column)] if several else []), Output(column))
                second = Statement(link.target[0], outputs, where=tuple(map(self._is, targets)), any_test=several)
                wording = self._say(self._either(link.ask.get(column, ()), "of_linked"), **slots)
                facts = self._by_name(targets, answers[column])
                yield self._reading(wording, (first, second), targets, facts, also=[row], subject=row)

    def _has_more(self, link: Link, row: Row, targets: Sequence[Row]) -> bool:
        """Return whether a list that links back to the table of `row` names it in rows other than `targets`."""
        ends = (link.target[0], row.table)
        naming = (
            self._catalog.places_of(*each.source, str(row.values[each.target[1]]))
            for each in self._links()
            if each.contains and (each.source[0], each.target[0]) == ends
        )
        return not {target.place for target in targets}.issuperset(chain.from_iterable(naming))

    def _pairs(self, *, contains: bool) -> list[tuple[Link, Row, tuple[Row, ...]]]:
        """Return (link, named row, rows to which the row refers) at random, the links in turn while they last."""
        links = [link for link in self._links() if link.contains == contains]
        each = [self._shuffled(pair for pair in self._catalog.linked(link) if pair[0].named) for link in links]
        turns = [(turn, at) for at, pairs in enumerate(each) for turn in range(len(pairs))]
        return [(links[at], *each[at][turn]) for turn, at in sorted(turns)]

    def linked_rows(self) -> Iterator[Draft]:
        """Yield drafts that ask which rows, or how many, refer to a named row, and to which row most rows refer."""
        for link in self._links():
            table, name = link.source[0], self._tables[link.target[0]].name
            if link.contains or name is None or not is_noun(self._tables[table].label):
                continue
            referring: dict[Row, list[Row]] = {}
            for row, (target,) in self._catalog.linked(link):
                referring.setdefault(target, []).append(row)
            joins, slots = self._joins(link), {**self._table_slots(table), "link": link.label}
            ranked = sorted(referring.items(), key=lambda item: -len(item[1]))
            output = Output(name, link.target[0])
            if len(ranked) > 2 and len(ranked[0][1]) > len(ranked[1][1]) and all(row.named for row in referring):
                statement = Statement(table, (output,), joins=joins, group_by=output, order_by=COUNT, descending=True,
                                      limit=1)  # fmt: skip
                wording = self._sentence("most_linked", **slots)
                yield self._reading(wording, [statement], [ranked[0][0]])
            for target, rows in self._shuffled(referring.items()):
                if not target.named:
                    continue
                where = (self._is(target, target.table),)
                own, slots["name"] = self._tables[table].name, self._name(target)
                kind = "belonging" if slots["name"] != target.name else "linked"  # "order 17" says what it is
                if own is not None and len(rows) <= MOST_ROWS and all(row.named for row in rows):
                    statement = Statement(table, (Output(own),), where=where, joins=joins)
                    wording = self._sentence(f"{kind}_rows", **slots)
                    yield self._reading(wording, [statement], rows, also=[target])
                wording = self._sentence(f"{kind}_count", **slots)
                statement = Statement(table, (COUNT,), where=where, joins=joins)
                counted = [(row, link.source[1]) for row in rows]
                yield self._number(wording, statement, len(rows), counted=counted, rows={target.key})

    def _links(self) -> list[Link]:
        return [link for link in self._catalog.description.links if link.source[0] != link.target[0]]

    @staticmethod
    def _joins(link: Link) -> tuple[Join, ...]:
        return (Join(link.target[0], link.target[1], link.source[1], link.contains),)
