"""Questions that the database does not answer: an empty cell, an unknown name, a column or a table that is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

from sql_agent.database.schema import fold
from sql_agent.schemas import Cell
from sql_agent.tasks.described.contents import LONGEST_ANSWER, Row
from sql_agent.tasks.described.description import Column
from sql_agent.tasks.described.drafts import Draft
from sql_agent.tasks.described.row_questions import RowQuestions
from sql_agent.tasks.described.statement import Comparison, Output, Statement
from sql_agent.tasks.described.words import Wording, is_person

_STEM = 5  # number of letters by which an English label is looked for in prose: "treat" of "treatment"
_MOST_SHOWN = 1500  # maximum number of characters of a whole row


class UnanswerableQuestions(RowQuestions):
    def unanswerable(self) -> Iterator[Draft]:
        """Yield drafts that ask for an empty cell, an unknown name, or a column or a table that does not exist."""
        makers = {"empty": self._empty, "name": self._unknown_name, "column": self._unknown_column}
        makers["part"] = self._unsaid
        kinds = ("empty", "empty", "name", "name", "column", "column", "table", "part")
        for row, name, column in self._cells("unanswerable"):
            kind = self._chosen.choice(kinds)
            draft = self._unknown_table() if kind == "table" else makers[kind](row, name, column)
            if draft is not None:
                yield draft

    def _empty(self, row: Row, name: str, column: Column) -> Draft | None:
        empty = self._catalog.empty_rows(row.table, name)
        if not empty or not column.ask:
            return None
        found = self._chosen.choice(empty)
        others = [(fold(f"{found.name} {found.values[o]}"), part) for o, part in self._catalog.instead(row.table, name)]
        if any(word in other for other, part in others for word in part.words):  # the name or another cell may answer
            return None
        prose = [fold(str(cell)) for cell in found.values.values() if len(str(cell or "")) > LONGEST_ANSWER]
        stems = [fold(label)[:_STEM].strip() for label in (column.label, *column.also) if label.isascii()]
        if any(re.search(rf"\b{re.escape(stem)}", text) for stem in stems for text in prose):
            return None
        wording = self._column_of(column, self._name(found))
        return self._about_row(wording, found, [name], [self._words["refusal"]], evidence=False)

    def _unsaid(self, row: Row, name: str, column: Column) -> Draft | None:
        """Return a draft about a part of a filled cell, or a claim, of which no cell of the row says a word."""
        claims = [each for each in self._tables[row.table].claims.values() if each.topic and not each.silent]
        claim, part = self._chosen.choice([*claims, None]), self._some_part(column)
        if claim is not None:
            ask, columns, words = (
                (*claim.ask, *claim.ask_not),
                claim.columns,
                (*claim.yes, *claim.unclear, *claim.topic),
            )
        elif part is not None and not part.ages and part.absent:
            ask, columns, words = part.ask, (name,), (*part.words, *part.absent)
        else:
            return None
        cells = fold("\n".join(str(each) for each in row.values.values()))
        if not all(row.values[each] for each in columns) or any(fold(word) in cells for word in words):
            return None
        refusal = [self._words["refusal"]]
        return self._about_row(self._say(ask, name=self._name(row)), row, columns, refusal, evidence=False)

    def _unknown_name(self, row: Row, name: str, column: Column) -> Draft | None:
        invented = self._invented(row)
        if invented is None or not column.ask:
            return None
        tests = [Comparison(row.name_column, "=", invented)]
        if isinstance(invented, str):  # the name may be a part of a longer one, which a second statement looks for
            tests.append(Comparison(row.name_column, "LIKE", invented))
        statements = [Statement(row.table, (Output(name),), where=(test,)) for test in tests]
        wording = self._column_of(column, self._shown(row.table, str(invented)))
        return self._refused(wording, *statements, rows=frozenset({(row.table, f"? {invented}")}))

    def _refused(self, wording: Wording, *statements: Statement, **more: Any) -> Draft:
        """Return an unanswerable draft; `more` are further fields of the draft."""
        return Draft(wording, statements, facts=(self._words["refusal"],), **more)

    def _unknown_column(self, row: Row, _name: str, _column: Column) -> Draft | None:
        missing, table = self._words["missing"], self._tables[row.table]
        others = "other" if self._name(row) == row.name else "numbered"
        label = self._chosen.choice(missing["person" if is_person(table.label) else others])
        wording = self._sentence("unknown_column", label=label, name=self._name(row))
        if table.unknown:
            wording = self._say(table.unknown, name=self._name(row))
        elif set(label.split()) & self._known_words:
            return None
        cells = self._catalog.database.tables[row.table].rows[row.place]
        if sum(len(str(cell or "")) for cell in cells) > _MOST_SHOWN:
            return None
        statement = Statement(row.table, (Output(),), where=(self._is(row),))
        return self._refused(wording, statement, expected=(cells,), rows=frozenset({row.key}), subject=row)

    def _unknown_table(self) -> Draft | None:
        """Return a draft about a thing that no table has. The statement looks for it in a name column."""
        things = self._catalog.description.unknown_tables or self._words["missing"]["tables"]
        named = [name for name, table in self._tables.items() if table.name and self._catalog.named(name)]
        thing = self._chosen.choice(list(things))
        if not named or set(thing.split()) & self._known_words:
            return None
        table = self._chosen.choice(named)
        output = Output(self._tables[table].name or "")
        statement = Statement(table, (output,), where=(Comparison(output.column, "LIKE", thing),))
        return self._refused(self._say(things[thing]), statement, rows=frozenset({("", thing)}))

    @cached_property
    def _known_words(self) -> set[str]:
        """The words of the labels of all tables, columns and links."""
        columns = [column.label for table in self._tables.values() for column in table.columns.values()]
        links = [link.label for link in self._catalog.description.links]
        tables = [label for table in self._tables.values() for label in (table.label, table.plural)]
        return {word for label in (*columns, *links, *tables) for word in label.split()}

    def _invented(self, row: Row) -> Cell:
        """Return a plausible name that no row has: halves of two names, or a number above all others; else None."""
        named = self._tables[row.table].name
        rows = self._catalog.rows[row.table]
        if named and all(isinstance(each.values[named], int) for each in rows):
            return max(int(str(each.values[named])) for each in rows) + self._chosen.randint(3, 400)
        if absent := self._absent(row.table):
            return self._chosen.choice(absent)
        other = self._chosen.choice(self._catalog.named(row.table)).name
        words = row.name.split(), other.split()
        if min(map(len, words)) > 1:
            invented = " ".join([*words[0][: len(words[0]) // 2], *words[1][len(words[1]) // 2 :]])
        elif not row.name.isascii() and len(row.name) > 2:
            invented = row.name[: len(row.name) // 2] + other[len(other) // 2 :]
        else:
            return None
        is_known = invented.casefold() in self._catalog.all_names(row.table)
        return None if is_known or row.name.casefold() in invented.casefold() else invented

    @cache
    def _absent(self, table: str) -> list[str]:
        # A name that a cell contains, such as that of an active substance, leads to rows that answer the question.
        return [name for name in self._tables[table].absent if not self._catalog.is_known(name)]
