"""Puts drafts into words; no text comes twice."""

from __future__ import annotations

import random

from sql_agent.tasks.medical.phrasing import HELD_OUT, Wording
from sql_agent.tasks.medical.questions.draft import Draft


class Phraser:
    """Words the drafts of one split; `held_out` adds the phrasings that other splits never see."""

    def __init__(self, wording: Wording, rng: random.Random, *, held_out: bool, used: set[str] | None = None) -> None:
        """Texts in `used` are taken already; new ones are added."""
        self._wording = wording
        self._rng = rng
        self._held_out = held_out
        self._used = set() if used is None else used

    def word(self, draft: Draft) -> tuple[str, str] | None:
        """Return the text with its SQL; None also where there is no template for the draft."""
        text = self.text(draft) if draft.formal and draft.pool in self._wording.phrasings else None
        return (text, draft.sql) if text else None

    def text(self, draft: Draft) -> str | None:
        """Return a question text that was not used before, or None when all phrasings of the draft are used up."""
        phrasings = self._phrasings(draft)
        self._rng.shuffle(phrasings)
        for phrasing in phrasings:
            text = phrasing.format(**draft.slots, field=self._field(draft))
            if text not in self._used:
                self._used.add(text)
                return text
        return None

    def _phrasings(self, draft: Draft) -> list[str]:
        shared = self._wording.phrasings[draft.pool]
        phrasings = shared if self._held_out else shared[:-HELD_OUT]
        if draft.column is None or set(draft.slots) != {"name"}:
            return list(phrasings)
        table, column = draft.column
        return [*phrasings, *self._wording.specific[table].get(column, [])]

    def _field(self, draft: Draft) -> str:
        if draft.column is None:
            return ""
        table, column = draft.column
        return self._rng.choice(self._wording.columns[table][column])
