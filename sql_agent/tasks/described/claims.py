"""Decide yes-no questions by the words in cells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sql_agent.database.schema import fold
from sql_agent.tasks.described.description import Claim

_SENTENCE = re.compile(r"[\n。；;]|[.!?](?=\s)")


def decide(claim: Claim, texts: Iterable[str], item: str = "") -> bool | None:
    """Return whether cells, in lower case, say yes to a claim about `item`; None where they are unclear or empty."""
    joined = "\n".join(texts)
    if not joined.strip():
        return None
    if claim.about:
        joined = "\n".join(part for part in _SENTENCE.split(joined) if any(fold(w) in part for w in claim.about[item]))
    for word in sorted(claim.ignored, key=len, reverse=True):
        joined = joined.replace(fold(word), " ")
    longer = [fold(word) for word in claim.no if any(fold(each) in fold(word) for each in claim.yes)]
    if any(word in joined for word in longer):  # "no prescription" is not "prescription"
        return False
    has_yes, has_no, is_unclear = (
        any(fold(word) in joined for word in words) for words in (claim.yes, claim.no, claim.unclear)
    )
    if is_unclear or (has_yes and has_no):
        return None
    if has_yes:
        return True
    return False if has_no or claim.silent else None


def is_apart(word: str, cell: str) -> bool:
    """Return whether a word shares no two characters in a row with a cell; of an ASCII word, no word."""
    folded = fold(word)
    parts = folded.split() if word.isascii() else [folded[n : n + 2] for n in range(len(folded) - 1)]
    return bool(parts) and not any(part in cell for part in parts)
