"""What the words of a cell say about a claim: yes, no, or nothing that decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from sql_agent.data.medical.banks import Claim, banks
from sql_agent.database.schema import fold
from sql_agent.schemas import Lang

# Where one statement of a cell ends: a word and what is said of it stand between two of these.
_CLAUSE_ENDS = re.compile(r"[;；。，,\n]|(?<!\d)\d{1,2}[.．、](?!\d)")
_SLOT = re.compile(r"\\\{\w+\\\}")
_NOTHING = re.compile(r"(?!)")


class ClaimReader:
    """Reads cells by one claim about `item`, one of the claim's subjects, or "" where it has none."""

    def __init__(self, name: str, table: str, claim: Claim, item: str) -> None:
        self.name = name
        self.table = table
        self.claim = claim
        self.item = item
        self._about = _any_of(claim.subjects[item]) if item else None
        self._aside = _any_of(claim.aside)
        kinds = {"yes": claim.yes, "no": claim.no, "doubtful": claim.doubtful}
        self._kinds = {fold(word): kind for kind, words in kinds.items() for word in words}
        self._words = _any_of(self._kinds)

    def decide(self, cells: Mapping[str, str]) -> tuple[bool, list[str]] | None:
        """Return whether the claim holds and the columns that say so; None where they do not decide.

        `cells` are by column. Where silence means no, the first column of the claim must not be empty.
        """
        said = {column: self._said(column, text) for column in self.claim.columns if (text := cells.get(column))}
        kinds = set().union(*said.values())
        if "yes" in kinds and self.claim.yes_wins:
            kinds = {"yes"}
        if len(kinds) == 1 and not kinds & {"doubtful"}:
            (kind,) = kinds
            return kind == "yes", [column for column in said if kind in said[column]]
        if not kinds and self.claim.silence_means_no and self.claim.columns[0] in said:
            return False, list(said)
        return None

    def worded(self, text: str) -> bool:
        """Return whether `text` asks for this claim in one of its wordings."""
        halves = (self.claim.train, self.claim.test)
        wordings = (wording for half in halves for wording in (*half.named, *half.after))
        return any(_pattern(wording).search(fold(text)) for wording in wordings)

    def _said(self, column: str, text: str) -> set[str]:
        """Return what a cell says: "yes", "no" and "doubtful", as far as it says anything."""
        found: set[str] = set()
        for clause in _CLAUSE_ENDS.split(self._aside.sub(" ", fold(text))):
            if self._about is None or self._about.search(clause):
                kinds = {self._kinds[match.group()] for match in self._words.finditer(clause)}
                if self._about is not None and not kinds:
                    kinds = {"yes" if column in self.claim.mentioned_in else "doubtful"}
                found |= kinds
        return found


@cache
def claim_readers(lang: Lang) -> tuple[ClaimReader, ...]:
    """Return a reader for each claim of the bank and each of its subjects."""
    return tuple(
        ClaimReader(name, table, claim, item)
        for table, by_name in banks(lang).claims.items()
        for name, claim in by_name.items()
        for item in claim.subjects or [""]
    )


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    # The longest word first: 非处方药 is not 处方药.
    longest_first = sorted(map(fold, words), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NOTHING


@cache
def _pattern(wording: str) -> re.Pattern[str]:
    """Return what finds a wording in a question, whatever fills its slots and however it ends."""
    return re.compile(_SLOT.sub(".+", re.escape(fold(wording).rstrip("。？?.！!"))))
