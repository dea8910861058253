"""Questions about which rows of a group a claim holds of, and which not: each asked with and without the not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.claims import ClaimReader, claim_readers
from sql_agent.tasks.medical.questions.conditions import search_of
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, quoted
from sql_agent.tasks.medical.questions.keywords import Match

# How many groups are asked about by one claim.
GROUPS = 40
# How many of the groups whose rows without something are asked for are asked about the others too.
WITHOUT_NOT = 0.5
# More words than these make no statement that people would write.
MAX_WORDS = 2


def claimed_rows(source: Corpus, groups: Sequence[Match]) -> Iterator[Draft]:
    """Yield the rows of a group of which a claim holds, and the others, where the words of its first column tell."""
    for reader in claim_readers(source.catalog.lang):
        if (
            reader.claim.rows
            and not reader.opposite
            and reader.claim.columns[0] in source.catalog.columns[reader.table]
        ):
            yield from _of_claim(source, reader, groups)


def _of_claim(source: Corpus, reader: ClaimReader, groups: Sequence[Match]) -> Iterator[Draft]:
    found = 0
    column = reader.claim.columns[0]
    for first, rows in source.rng.sample(groups, len(groups)):
        if first.table != reader.table or first.column == column or found == GROUPS:
            continue
        decided = {row: said for row in rows if (said := _holds(source, reader, row)) is not None}
        if len(decided) < len(rows) or len(set(decided.values())) < 2 or not all(row.askable for row in rows):
            continue
        for holds in (False, True) if source.rng.random() < WITHOUT_NOT else (False,):
            wanted = [row for row in rows if decided[row] == holds]
            others = [row for row in rows if decided[row] != holds]
            if told := _told_apart(reader, column, wanted, others, holds=holds):
                for draft in search_of(source, "negation", wanted, (first,)):
                    yield _claimed(draft, reader, told, holds=holds)
        found += 1


def _holds(source: Corpus, reader: ClaimReader, row: Entity) -> bool | None:
    """Return whether a claim holds of a row, where its first column says the same as all of them; None elsewhere.

    The statement reads the first column alone: a drug whose precautions warn drivers does not count as silent.
    """
    said = {column: row.values.get(column) or "" for column in reader.claim.columns}
    cells = {column: text for column, text in said.items() if source.says_something(text)}
    first = reader.claim.columns[0]
    alone, together = reader.decide({first: cells.get(first, "")}), reader.decide(cells)
    return alone[0] if alone and together and alone[0] == together[0] else None


def _claimed(draft: Draft, reader: ClaimReader, told: str, *, holds: bool) -> Draft:
    said = reader.claim.rows
    if said is None:
        raise AssertionError(f"no words for the rows of {reader.name}")
    return replace(
        draft,
        slots={**draft.slots, "item": reader.item},
        sql=f"{draft.sql} AND {told}",
        second=said.holds if holds else said.lacks,
        bucket=f"claims/{reader.name}/{reader.item}",
    )


def _told_apart(
    reader: ClaimReader, column: str, wanted: list[Entity], others: list[Entity], *, holds: bool
) -> str | None:
    """Return the condition that selects `wanted` and not `others`: by what they hold, or by what the others hold.

    What is lacking is looked for by NOT LIKE, unless each row holds the word: 处方药 stands in 非处方药 too.
    """
    held = _covering(reader.words(holds=holds), column, wanted, others)
    missing = _covering(reader.words(holds=not holds), column, others, wanted)
    ways = [" OR ".join(_likes(column, "LIKE", held)), " AND ".join(_likes(column, "NOT LIKE", missing))]
    told = next((way for way in (ways if holds else ways[::-1]) if way), None)
    return f"({told})" if told and " OR " in told else told


def _covering(words: Iterable[str], column: str, rows: list[Entity], others: list[Entity]) -> list[str]:
    """Return a few of `words` of which each of `rows` holds one and none of `others` does; [] when there are none."""
    texts = [fold(row.values.get(column) or "") for row in rows]
    against = [fold(row.values.get(column) or "") for row in others]
    chosen: list[str] = []
    for word in (word for word in words if not any(fold(word) in text for text in against)):
        if any(fold(word) in text and not any(fold(other) in text for other in chosen) for text in texts):
            chosen.append(word)
    covered = all(any(fold(word) in text for word in chosen) for text in texts)
    return chosen if covered and len(chosen) <= MAX_WORDS else []


def _likes(column: str, operator: str, words: Iterable[str]) -> list[str]:
    return [f"{column} {operator} {quoted(f'%{word}%')}" for word in words]
