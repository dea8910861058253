"""Yes-no questions about a cell of a row, or about a claim such as that somebody may use something."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from sql_agent.database.schema import fold
from sql_agent.tasks.described.catalog import PROSE_CHARS
from sql_agent.tasks.described.claims import Claims, decide
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import Column
from sql_agent.tasks.described.drafts import Draft
from sql_agent.tasks.described.row_questions import MOST_SIMILAR, RowQuestions

# The key of the sentence that asks whether a row meets a condition, by the condition's phrase.
_YES_NO = {"category": "is_value", "above": "is_above", "after": "is_after"}
_CLAIMS_SHARE = 0.5  # share of claims among the yes-no questions of a table with claims
_MANY_TERMS = 50  # if a list has fewer terms, questions also name its other items


class YesNoQuestions(RowQuestions):
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
            others = self._shuffled(self._similar(row, name))[:MOST_SIMILAR]
            words = [word for other in others for word in self._said_in(other, name, column) if is_apart(word, cell)]
        templates = column.confirm
        if column.kind == "list":
            templates, terms = self._either(templates, "is_item"), self._catalog.terms(row.table, name)
            few = len(terms) < _MANY_TERMS
            words = [word for word in words if word in terms or (few and self._catalog.is_searchable(word))]
        if not words or not templates:
            return None
        word = self._chosen.choice(words)
        ways = [claim.yes for claim in self._tables[row.table].claims.values() if name in claim.columns]
        if not wanted and any(any(w in cell for w in yes) and any(w in word for w in yes) for yes in ways):
            return None  # the cell says the same in another word, such as 干燥 for 防潮
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
        """Return a draft about a claim or its opposite, and about a row whose cells give the answer `wanted`.

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

    def _yes(self, *, is_true: bool) -> list[str]:
        return [self._words["yes" if is_true else "no"]]


def is_apart(word: str, cell: str) -> bool:
    """Return whether the text `cell` contains no part of `word`.

    Parts are the words of an ASCII `word`, else each two adjacent characters. Return False if `word` has none.
    """
    folded = fold(word)
    parts = folded.split() if word.isascii() else [folded[n : n + 2] for n in range(len(folded) - 1)]
    return bool(parts) and not any(part in cell for part in parts)
