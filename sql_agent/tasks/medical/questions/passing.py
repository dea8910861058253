"""What a question says in passing beside the names that it asks about, such as the class of a drug."""

from __future__ import annotations

import random
import re

from sql_agent.questions.rewrite_checks import Half
from sql_agent.tasks.medical.banks import Passing
from sql_agent.tasks.medical.questions.catalog import ITEM_ENDS, Catalog, Entity
from sql_agent.tasks.medical.questions.draft import Draft

CLASS_COLUMN = "cate_name"
# A class that people say; what is left over is none.
_CLASS = {
    "en": re.compile(r"(?!other)[a-z][A-Za-z -]{3,30}", re.IGNORECASE),
    "zh": re.compile(r"(?!其[他它])[一-鿿]{2,9}(?:药|类|剂|类药|药物)"),
}


class InPassing:
    """Chooses what is said in passing before the questions of one split."""

    def __init__(self, bank: Passing, catalog: Catalog, half: Half) -> None:
        self._bank = bank
        self._catalog = catalog
        self._half = half

    def kinds(self, draft: Draft) -> list[str]:
        """Return the classes of the drug, or of both drugs, of a question; [] where a class would give the answer."""
        rows = draft.pair or ((draft.subject,) if draft.subject else ())
        asked = draft.column is None or draft.column[1] == CLASS_COLUMN
        if asked or not rows or draft.task_type in {"unanswerable", "yes_no"}:
            return []
        shared = set.intersection(*(self._classes(row) for row in rows))
        return sorted(kind for kind in shared if not any(kind in text or text in kind for text in _names(draft)))

    def before_a_pair(self, table: str, kinds: list[str], rng: random.Random) -> str:
        """Return a sentence before a question about two rows of `table`."""
        sentences = self._bank.pairs[table].of(self._half)
        sentence = rng.choice([text for text in sentences if kinds or "{kind}" not in text])
        return sentence.format(kind=rng.choice(kinds) if kinds else "")

    def situations(self, kinds: list[str]) -> tuple[str, ...]:
        """Return the situations that name a drug with its class."""
        return self._bank.named.of(self._half) if kinds else ()

    def _classes(self, row: Entity) -> set[str]:
        parts = (part.strip() for part in ITEM_ENDS.split(row.values.get(CLASS_COLUMN) or ""))
        plain = {part for part in parts if _CLASS[self._catalog.lang].fullmatch(part)}
        # A class that is a name too would be one more row that the question is about.
        return {
            kind for kind in plain
            if not any(next(self._catalog.names_in(table, kind), None) for table in self._catalog.rows)
        }  # fmt: skip


def _names(draft: Draft) -> list[str]:
    return [row.name for row in (*(draft.pair or ()), draft.subject) if row]
