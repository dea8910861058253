"""Questions about one or two named rows: columns, parts of cells, yes or no, comparisons, unanswerable questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain, islice
from typing import Any

from sql_agent.database.schema import fold
from sql_agent.schemas import Cell
from sql_agent.tasks.described.catalog import PROSE_CHARS, Row
from sql_agent.tasks.described.claims import Claims, decide
from sql_agent.tasks.described.conditions import sentences_by_age
from sql_agent.tasks.described.description import Column, Part
from sql_agent.tasks.described.drafts import MOST_READ, Draft, Drafting
from sql_agent.tasks.described.statement import Comparison, Output, Statement
from sql_agent.tasks.described.words import Wording, is_person

# The key of the sentence that asks whether a row meets a condition, by the condition's phrase.
_YES_NO = {"category": "is_value", "above": "is_above", "after": "is_after"}
_CLAIMS_SHARE = 0.5  # share of claims among the yes-no questions of a table with claims
_MOST_SHOWN = 1500  # maximum number of characters of a whole row
_TRIES = 5  # maximum number of rows in which a word for the answer no is sought
_SHARED = 12  # number of items of a row, the rarest ones, by which similar rows are found
_MOST_OF_AN_END = 2  # maximum number of shared last characters of two names that count, each like a shared item
LEAST_ALIKE = 4  # minimum number of shared items and characters of two compared rows
_INSTEAD_SHARE = 0.6  # share of the questions whose own column is empty, if a part of another column can answer them
_OTHER_ROW_SHARE = 0.5  # share of them that another row answers, if this row names one with the same contents
_PART_SHARE = 0.4  # share of the comparisons, and of the answers elsewhere, that are a part of a cell
_MANY_TERMS = 50  # if a list has fewer terms, questions also name its other items


class RowQuestions(Drafting):
    """Yields drafts about named rows, in random order."""

    def lookup(self) -> Iterator[Draft]:
        """Yield drafts that ask for one column of a named row."""
        for row, name, column in self._cells("lookup"):
            if column.ask and (facts := self._catalog.facts(row, name)):
                yield self._about_row(self._column_of(column, self._name(row)), row, [name], facts)

    def part(self) -> Iterator[Draft]:
        """Yield drafts that ask for some of a list's items or of a text's sentences.

        At most every other answer has one item, as long as there are answers with several items. A model trained
        mostly on answers with one item gives one where several are right.
        """
        single: list[Draft] = []
        follows_several = False
        for row, name, column in self._cells("part", "list", "text", "category"):
            part = self._some_part(column)
            if part is not None and (rows := self._catalog.rows_with(row.table, name, part)):
                found = self._chosen.choice(rows)
                inside, age = self._catalog.part(found, name, part), ""
                if part.ages:
                    age, sentence = self._chosen.choice(list(sentences_by_age(inside).items()))
                    inside = [sentence]
                wording = self._column_of(column, self._name(found), part, age=age)
                draft = self._read_beside(wording, found, [name], self._without(found, name, part), inside)
                if len(inside) == 1 and not follows_several:
                    single.append(draft)
                    continue
                follows_several = len(inside) > 1
                yield draft
        yield from single

    def _without(self, row: Row, name: str, part: Part) -> list[str]:
        """Return the filled columns whose part has the key of `part` of the column `name`, but no item in `row`."""
        columns = self._tables[row.table].columns
        (key,) = (key for key, each in columns[name].parts.items() if each is part)
        cells = {other: fold(str(row.values[other] or "")) for other in columns if other != name}
        alike = {
            other: columns[other].parts[key] for other, cell in cells.items() if cell and key in columns[other].parts
        }
        return [other for other, each in alike.items() if not any(word in cells[other] for word in each.words)]

    def _some_part(self, column: Column) -> Part | None:
        parts = [part for part in column.parts.values() if part.ask]
        return self._chosen.choice(parts) if parts else None

    def elsewhere(self) -> Iterator[Draft]:
        """Yield drafts with two statements: the first reads an empty cell, and the second the cell with the answer.

        The question asks for the empty cell, and a part of the other cell, or the cell of another row, answers it; or
        it asks for the other cell.
        """
        for row, empty, column in self._cells("elsewhere"):
            if self._chosen.random() < _OTHER_ROW_SHARE and (pairs := self._catalog.other_rows(row.table, empty)):
                yield from self._in_another_row(*self._chosen.choice(pairs), empty, column)
                continue
            instead = self._catalog.instead(row.table, empty)
            part: Part | None
            if instead and self._chosen.random() < _INSTEAD_SHARE:
                asked, (name, part) = column, self._chosen.choice(instead)
                rows = [r for r in self._catalog.rows_with(row.table, name, part) if r.values[empty] is None]
            elif confused := self._confused(row.table, empty):
                asked, name, part = confused
                rows = self._catalog.empty_rows(row.table, empty, name)
            else:
                continue
            if not rows or not asked.ask or (part and part.ages):
                continue
            found = self._chosen.choice(rows)
            if facts := self._catalog.facts(found, name, part):
                wording = self._column_of(asked, self._name(found), part)
                statements = [Statement(row.table, (Output(each),), where=(self._is(found),)) for each in (empty, name)]
                yield self._reading(wording, statements, [found], facts, subject=found)

    def _in_another_row(self, row: Row, other: Row, empty: str, column: Column) -> Iterator[Draft]:
        """Yield a draft that reads the empty cell of `row`, then that of `other`, as the hint says to do."""
        part = self._some_part(column) if self._chosen.random() < _PART_SHARE else None
        if column.ask and not (part and part.ages) and (facts := self._catalog.facts(other, empty, part)):
            statements = [Statement(row.table, (Output(empty),), where=(self._is(each),)) for each in (row, other)]
            wording = self._column_of(column, self._name(row), part)
            yield self._reading(wording, statements, [other], facts, also=[row], subject=row)

    def _confused(self, table: str, empty: str) -> tuple[Column, str, Part | None] | None:
        """Return a column that people take for `empty`, its name, and perhaps a part; None if no column has `near`."""
        others = {name: each for name, each in self._tables[table].columns.items() if each.ask and name != empty}
        if not any(each.near for each in others.values()):
            return None
        filled = [name for name in others if self._catalog.empty_rows(table, empty, name)]
        name = self._chosen.choice([name for name in filled if empty in others[name].near] or filled or [empty])
        asked = self._tables[table].columns[name]
        return asked, name, self._some_part(asked) if self._chosen.random() < _PART_SHARE else None

    def columns(self) -> Iterator[Draft]:
        """Yield drafts that ask for two columns of a row."""
        kinds = ("text", "category", "number", "date", "list")
        for row, first, column in self._cells("columns", *kinds):
            others, beside = self._table_columns(row.table, *kinds), self._beside("columns", row.table, first)
            wanted = others if beside is None else beside
            filled = [name for name in wanted if name != first and row.values[name] is not None]
            second = self._chosen.choice(filled) if filled else first
            facts = [self._catalog.facts(row, name) for name in (first, second)]
            if second != first and all(facts):
                spoken = [self._spoken(each).cell_label for each in (column, others[second])]
                labels = {"label": spoken[0], "label2": spoken[1]}
                wording = self._sentence("several", name=self._name(row), **labels)
                yield self._about_row(wording, row, [first, second], [*facts[0], *facts[1]])

    def yes_no(self) -> Iterator[Draft]:
        """Yield yes-no drafts about a cell of a row, or about a claim; half of the answers are yes.

        If the answer on a list or a text is no, `is_apart` holds for the word and the cell. This excludes synonyms that
        share a part with the word.
        """
        for row, name, column in self._cells("yes_no", "category", "list", "number", "date", "text"):
            claims = self._tables[row.table].claims
            wanted = self._chosen.random() < 0.5
            if claims and self._chosen.random() < _CLAIMS_SHARE:
                draft = self._claimed(row.table, wanted=wanted)
            elif column.kind in {"list", "text"}:
                draft = self._contained(row, name, column, wanted=wanted)
            else:
                draft = self._compared(row, name, column, wanted=wanted)
            if draft is not None:
                yield draft

    def _contained(self, row: Row, name: str, column: Column, *, wanted: bool) -> Draft | None:
        """Return a draft that asks whether a cell has an item or a word, or an everyday word for it."""
        if not self._catalog.facts(row, name):
            return None
        words, cell = self._said_in(row, name, column), fold(str(row.values[name]))
        if not wanted:
            others = self._shuffled(self._similar(row, name))[:_TRIES]
            words = [word for other in others for word in self._said_in(other, name, column) if is_apart(word, cell)]
        templates = column.confirm
        if column.kind == "list":
            templates, terms = self._either(templates, "is_item"), self._catalog.terms(row.table, name)
            few = len(terms) < _MANY_TERMS
            words = [word for word in words if word in terms or (few and self._catalog.is_searchable(word))]
        if not words or not templates:
            return None
        word = self._chosen.choice(words)
        said = self._chosen.choice([word, *self._catalog.description.said.get(word, ())])
        if word in row.name or (not wanted and not is_apart(said, cell)):
            return None
        slots = self._slots(column, name=self._name(row), value=said)
        return self._about_row(self._say(templates, **slots), row, [name], self._yes(is_true=wanted))

    def _said_in(self, row: Row, name: str, column: Column) -> list[str]:
        """Return what a yes-no question can ask about a cell: words in the cell, or the whole of a short text."""
        text = str(row.values[name]).strip()
        is_short = column.kind == "text" and len(text) <= PROSE_CHARS and self._catalog.fits(text)
        return [text] if is_short else self._catalog.words_of(row, name)

    def _compared(self, row: Row, name: str, column: Column, *, wanted: bool) -> Draft | None:
        """Return a draft that asks whether a cell equals a value, or is above or after it."""
        kind = _YES_NO | ({"above": "is_more"} if column.counts else {})
        for condition in self._shuffled(self._catalog.conditions_on(row.table, name)):
            is_true = all(test.holds(row.values[name]) for test in condition.tests)
            if is_true == wanted and condition.phrase in kind and self._catalog.facts(row, name):
                slots = self._slots(column, name=self._name(row), value=condition.value)
                wording = self._sentence(kind[condition.phrase], **slots)
                if column.confirm and condition.phrase == "category":
                    wording = self._say(column.confirm, **slots)
                return self._about_row(wording, row, [name], self._yes(is_true=wanted))
        return None

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self._catalog)

    def _claimed(self, table: str, *, wanted: bool) -> Draft | None:
        """Return a draft with the answer `wanted` about a claim or its opposite, in a row whose cells decide it so.

        If the row were drawn first, nearly all would lack the claim's words, and the wording would tell the answer.
        """
        key, item = self._chosen.choices(*self._claims.to_draw(table))[0]
        claim = self._tables[table].claims[key]
        opposite = bool(claim.ask_not) and self._chosen.random() < 0.5
        decided = wanted != opposite
        rows = self._claims.decided(table, key, item)[decided]
        if not rows:
            return None
        row, texts = self._chosen.choice(rows)
        spoken = claim.model_copy(update={"silent": False})
        deciding = [column for column, text in texts.items() if decide(spoken, [text], item) is decided]
        filled = [column for column, text in texts.items() if text]
        wording = self._say(claim.ask_not if opposite else claim.ask, name=self._name(row), item=item)
        return self._read_beside(wording, row, deciding[:1] or filled, filled, self._yes(is_true=wanted))

    def _read_beside(
        self, wording: Wording, row: Row, needed: Sequence[str], beside: Sequence[str], facts: Iterable[str]
    ) -> Draft:
        """Return a draft about the cells of the columns `needed`, which also reads those of `beside`, if all are short.

        The wording does not tell which of these columns has the answer.
        """
        columns = [name for name in self._tables[row.table].columns if name in {*needed, *beside}]
        is_short = sum(len(str(row.values[name])) for name in columns) <= MOST_READ
        draft = self._about_row(wording, row, columns if is_short else needed, facts)
        return replace(draft, evidence=tuple(item for column in needed for item in row.evidence(column)))

    def _yes(self, *, is_true: bool) -> list[str]:
        return [self._words["yes" if is_true else "no"]]

    def comparison(self) -> Iterator[Draft]:
        """Yield drafts that ask which of two rows has the larger number or later date, or for a column of both."""
        for row, name, column in self._cells("comparison", "number", "date", "category", "list", "text"):
            alike = self._tables[row.table].alike
            similar = self._similar(row, name, LEAST_ALIKE if alike else 1)
            if not similar:
                continue
            other = similar[0] if alike else self._chosen.choice(similar)
            both = row, other
            slots = self._slots(column, name=self._name(row), other=self._name(other))
            cells = Statement(
                row.table, (Output(row.name_column), Output(name)), where=tuple(map(self._is, both)), any_test=True
            )
            differ = column.kind in {"number", "date"} and row.values[name] != other.values[name]
            if differ and self._chosen.random() < 0.7:
                best = max(both, key=lambda each: each.values[name])  # type: ignore[arg-type, return-value]
                names, order = cells.outputs
                statement = replace(cells, outputs=(names,), order_by=order, descending=True, limit=1)
                wording = self._sentence("higher" if column.kind == "number" else "later", **slots)
                yield self._reading(wording, [statement], [best], also=both)
                continue
            parts = [part for part in column.parts.values() if part.ask_two]
            part = self._chosen.choice(parts) if parts and self._chosen.random() < _PART_SHARE else None
            answers = [self._catalog.facts(each, name, part) for each in both]
            if all(answers):
                plain = "both_lists" if column.kind == "list" else "both"
                wording = self._say(part.ask_two if part else self._either(column.ask_two, plain), **slots)
                yield self._reading(wording, [cells], both, self._by_name(both, answers))

    def _similar(self, row: Row, column: str, least: int = 1) -> list[Row]:
        """Return rows that questions can name, that have a value in `column`, and that are like `row`.

        They share at least `least` rare items and last characters of the name with `row`. If the table has no
        searchable list or text, all rows with a name and a value in `column` are returned.
        """
        if not self._catalog.conditions_by_word(row.table):
            return [each for each in self._catalog.filled_rows(row.table, column) if each is not row]
        likely = (each for each, shared in self._common(row) if shared >= least)
        return list(islice((each for each in likely if each.named and str(each.values[column] or "").strip()), _TRIES))

    @cache
    def _common(self, row: Row) -> list[tuple[Row, int]]:
        """Return other rows, the most similar first, with their shared rare items plus last characters of the name."""
        by_word, table = self._catalog.conditions_by_word(row.table), self._tables[row.table]
        lists = table.alike or self._table_columns(row.table, "list")
        conditions = [by_word.get((name, word)) for name in lists for word in self._catalog.words_of(row, name)]
        having = [self._catalog.places(row.table, condition) for condition in conditions if condition is not None]
        common = Counter(chain.from_iterable(sorted(having, key=len)[:_SHARED]))
        del common[row.place]
        rows, ends = self._catalog.rows[row.table], {row.name[-length:] for length in range(1, _MOST_OF_AN_END + 1)}
        alike = {place: common[place] + sum(map(rows[place].name.endswith, ends)) for place in sorted(common)}
        return [(rows[place], shared) for place, shared in Counter(alike).most_common()]

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

    def _column_of(self, column: Column, name: str, part: Part | None = None, **slots: str) -> Wording:
        return self._say((part and part.ask) or column.ask, **self._slots(column, name=name, **slots))

    def _empty(self, row: Row, name: str, column: Column) -> Draft | None:
        empty = self._catalog.empty_rows(row.table, name)
        if not empty or not column.ask:
            return None
        found = self._chosen.choice(empty)
        others = [(fold(f"{found.name} {found.values[o]}"), part) for o, part in self._catalog.instead(row.table, name)]
        if any(word in other for other, part in others for word in part.words):  # the name or another cell may answer
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
        known = self._catalog.all_names(table)
        return [name for name in self._tables[table].absent if name.casefold() not in known]


def is_apart(word: str, cell: str) -> bool:
    """Return whether the text `cell` contains no part of `word`.

    Parts are the words of an ASCII `word`, else each two adjacent characters. Return False if `word` has none.
    """
    folded = fold(word)
    parts = folded.split() if word.isascii() else [folded[n : n + 2] for n in range(len(folded) - 1)]
    return bool(parts) and not any(part in cell for part in parts)
