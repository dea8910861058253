"""What the words of a cell say about a claim: yes, no, or nothing that decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from sql_agent.database.schema import fold
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.banks import Claim, banks

# Where one statement of a cell ends: a word and what is said of it stand between two of these.
_CLAUSE_ENDS = re.compile(r"[;；。，,\n]|(?<!\d)\d{1,2}[.．、](?!\d)")
# What makes a clause say that something does not matter: it names the thing and is no "yes".
_DENIED = re.compile(
    r"不影响|不会影响|不受|[无没]有?影响|[无勿]需|[无毋]须|不必|不需|不用"
    r"|not affect|no effect|no need|not need|need not|not required"
)
_SLOT = re.compile(r"\\\{\w+\\\}")
_NOTHING = re.compile(r"(?!)")


class ClaimReader:
    """Reads cells by one claim about `item`, one of the claim's subjects, or "" where it has none.

    With `opposite` it reads them for the questions that ask the other way round.
    """

    def __init__(self, name: str, table: str, claim: Claim, item: str, *, opposite: bool = False) -> None:
        self.name = name
        self.table = table
        self.claim = claim
        self.item = item
        self.opposite = opposite
        self._about = _any_of(claim.subjects[item]) if item else None
        self._aside = _any_of(claim.aside)
        kinds = {"yes": claim.yes, "no": claim.no, "doubtful": claim.doubtful}
        self._kinds = {fold(word): kind for kind, words in kinds.items() for word in words}
        self._words = _any_of(self._kinds)
        self._others = _any_of(word for other in claim.subjects if other != item for word in claim.subjects[other])

    def decide(self, cells: Mapping[str, str]) -> tuple[bool, list[str]] | None:
        """Return whether the answer is yes and the columns that say so; None where they do not decide.

        `cells` are by column. Where silence means no, the first column of the claim must not be empty.
        """
        said = {column: self._said(column, text) for column in self.claim.columns if (text := cells.get(column))}
        kinds = set().union(*said.values())
        if "yes" in kinds and self.claim.yes_wins:
            kinds = {"yes"}
        if len(kinds) == 1 and not kinds & {"doubtful"}:
            (kind,) = kinds
            return (kind == "yes") != self.opposite, [column for column in said if kind in said[column]]
        if not kinds and self.claim.silence_means_no and self.claim.columns[0] in said:
            return self.opposite, list(said)
        return None

    def words(self, *, holds: bool) -> tuple[str, ...]:
        """Return the words of a cell that say yes or no; of a claim without such, those of its subject say yes."""
        return (self.claim.yes or self.claim.subjects.get(self.item, ())) if holds else self.claim.no

    def names_another(self, cells: Mapping[str, str]) -> bool:
        """Return whether cells name another subject of the claim: the other organ, the other people."""
        return any(self._others.search(fold(text)) for text in cells.values())

    def named_by(self, name: str) -> bool:
        """Return whether a row's name holds a word that decides: what it is asked for can be read off the question."""
        return bool(self._words.search(fold(name)) or (self._about and self._about.search(fold(name))))

    def worded(self, text: str) -> bool:
        """Return whether `text` asks for this claim in one of its wordings."""
        asks = self.claim.opposite if self.opposite and self.claim.opposite else self.claim
        wordings = (wording for half in (asks.train, asks.test) for wording in (*half.named, *half.after))
        return any(_pattern(wording).search(fold(text)) for wording in wordings)

    def _said(self, column: str, text: str) -> set[str]:
        """Return what a cell says: "yes", "no" and "doubtful", as far as it says anything."""
        found: set[str] = set()
        for clause in _CLAUSE_ENDS.split(self._aside.sub(" ", fold(text))):
            if self._about is None or self._about.search(clause):
                kinds = {self._kinds[match.group()] for match in self._words.finditer(clause)}
                if self._about is not None and not kinds:
                    kinds = {"yes" if column in self.claim.mentioned_in else "doubtful"}
                found |= {"doubtful"} if kinds and _DENIED.search(clause) else kinds
        return found


@cache
def claim_readers(lang: Lang) -> tuple[ClaimReader, ...]:
    """Return a reader for each claim of the bank, each of its subjects, and each way round that it is asked."""
    return tuple(
        ClaimReader(name, table, claim, item, opposite=opposite)
        for table, by_name in banks(lang).claims.items()
        for name, claim in by_name.items()
        for item in claim.subjects or [""]
        for opposite in ((False, True) if claim.opposite else (False,))
    )


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    # The longest word first: 非处方药 is not 处方药.
    longest_first = sorted(map(fold, words), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NOTHING


@cache
def _pattern(wording: str) -> re.Pattern[str]:
    """Return what finds a wording in a question, whatever fills its slots and however it ends."""
    return re.compile(_SLOT.sub(".+", re.escape(fold(wording).rstrip("。？?.！!"))))
