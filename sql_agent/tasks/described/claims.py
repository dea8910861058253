"""Decide from the cells of rows whether a claim about a row is true, such as that somebody must not use it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from sql_agent.database.schema import fold
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.contents import Row, without_words
from sql_agent.tasks.described.description import Claim

_SENTENCE = re.compile(r"[\n。；;]|[.!?](?=\s)")
_BOTH_SIDES = 20  # number of rows with the rarer verdict on a claim from which the claim is drawn as often as others
_ONE_SIDED_SHARE = 0.05  # share of a claim on which no two rows differ, compared with other claims


class Claims:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @cache
    def to_draw(self, table: str) -> tuple[list[tuple[str, str]], list[float]]:
        """Return the claims of a table with each of their items, and how often each is drawn.

        A claim that nearly all rows decide alike is rare, because its wording gives away the answer. It does
        not if the question is unanswerable in other rows.
        """
        about = {key: claim.about or {"": ()} for key, claim in self._catalog.table(table).claims.items()}
        pairs = [(key, item) for key, items in about.items() for item in items]
        claims = self._catalog.table(table).claims
        least = {key: max if claim.topic and not claim.silent else min for key, claim in claims.items()}
        fewest = [least[key](map(len, self.decided(table, key, item).values())) for key, item in pairs]
        shares = [max(_ONE_SIDED_SHARE, min(1.0, few / _BOTH_SIDES)) for few in fewest]
        return pairs, [share / len(about[key]) ** 0.5 for share, (key, _) in zip(shares, pairs, strict=True)]

    @cache
    def decided(self, table: str, key: str, item: str) -> dict[bool, list[tuple[Row, dict[str, str]]]]:
        """Return the rows, with their cells, that decide a claim about `item`, by verdict."""
        claim = self._catalog.table(table).claims[key]
        spoken = claim.model_copy(update={"silent": False})
        found: dict[bool, list[tuple[Row, dict[str, str]]]] = {True: [], False: []}
        for row, texts in self._lower_cells(table, claim.columns):
            # If the first column is empty, the absence of words means nothing.
            verdict = decide(claim if texts[claim.columns[0]] else spoken, texts.values(), item)
            if verdict is not None:
                found[verdict].append((row, texts))
        return found

    @cache
    def _lower_cells(self, table: str, columns: Sequence[str]) -> list[tuple[Row, dict[str, str]]]:
        """Return the rows that a question can name and that fill one of `columns`, with these cells in lower case."""
        rows = self._catalog.named(table)
        cells = [(row, {column: fold(str(row.values[column] or "")) for column in columns}) for row in rows]
        return [(row, texts) for row, texts in cells if any(texts.values())]


@cache
def _lower(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(fold, words))


@cache
def _longer(words: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the `words`, in lower case, that contain one of `others`."""
    return tuple(word for word in _lower(words) if any(other in word for other in _lower(others)))


def decide(claim: Claim, texts: Iterable[str], item: str) -> bool | None:
    """Return whether `texts`, cells in lower case, say yes to a claim about `item`; None if they decide nothing."""
    joined = whole = "\n".join(texts)
    if not joined.strip():
        return None
    if claim.about:
        about = _lower(claim.about[item])
        parts = _SENTENCE.split(joined) if any(word in joined for word in about) else ()
        joined = "\n".join(part for part in parts if any(word in part for word in about))
    joined = without_words(joined, _lower(claim.ignored))
    if any(word in joined for word in _longer(claim.no, claim.yes)):  # "no prescription" is not "prescription"
        return False
    has_yes, has_no, is_unclear, has_topic = (
        any(word in text for word in _lower(words))
        for words, text in ((claim.yes, joined), (claim.no, joined), (claim.unclear, joined), (claim.topic, whole))
    )
    if is_unclear or (has_yes and has_no):
        return None
    if has_yes:
        return True
    return False if has_no or (claim.silent and (has_topic or not claim.topic)) else None
