"""Compare the results of a statement and of the gold statement by the rules of public text-to-SQL evaluators.

The rules are those of test-suite accuracy (Zhong, Yu and Klein 2020, arXiv:2010.02840). Two results are equal if they
have the same rows once the columns of one result are reordered. Duplicate rows count; the order of rows counts only if
the gold statement has an ORDER BY. DISTINCT is removed from both statements. Any two empty results are equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from sql_agent.schemas import Cell

ResultRow = tuple[Cell, ...]

_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]"""
_DISTINCT = re.compile(rf"({_QUOTED})|\bdistinct\b", re.IGNORECASE)
_SPLIT_COMPARISON = re.compile(rf"({_QUOTED})|([<>!]) =")
_ORDER_BY = re.compile(r"order\s+by", re.IGNORECASE)
_FENCED = re.compile(r"```[ \t]*(?:sqlite|sql)?[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_START = re.compile(r"^[ \t]*(?:SELECT|WITH)\b.*", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def comparable(sql: str) -> str:
    """Return the statement to run in place of `sql`: without DISTINCT, and with `>=` for `> =`.

    DISTINCT is removed because the annotations of public data sets disagree about it.
    """
    joined = _SPLIT_COMPARISON.sub(lambda match: match[1] or f"{match[2]}=", sql)
    return _DISTINCT.sub(lambda match: match[1] or "", joined)


def is_ordered(gold_sql: str) -> bool:
    """Return whether the gold statement has an ORDER BY anywhere, so that the order of rows counts."""
    return _ORDER_BY.search(gold_sql) is not None


def results_match(gold: Sequence[ResultRow], found: Sequence[ResultRow], *, ordered: bool) -> bool:
    """Return whether reordering the columns of `found` gives the rows of `gold`; with `ordered`, in the same order.

    1 equals 1.0, NULL equals NULL, and no text equals a number. Numbers are compared without tolerance.
    """
    if len(gold) != len(found) or (gold and len(gold[0]) != len(found[0])):
        return False
    ours, theirs = list(zip(*gold, strict=True)), list(zip(*found, strict=True))
    if ordered:
        return Counter(ours) == Counter(theirs)
    # The search places one column after another. After each step the rows of the placed columns must be equal, which
    # leaves few choices.
    expected = [Counter(zip(*ours[: count + 1], strict=True)) for count in range(len(ours))]
    values = [Counter(column) for column in theirs]
    wanted = [Counter(column) for column in ours]

    def place(chosen: tuple[int, ...]) -> bool:
        depth = len(chosen)
        if depth == len(ours):
            return True
        tried = set()
        for index, column in enumerate(theirs):
            if index in chosen or column in tried or values[index] != wanted[depth]:
                continue
            tried.add(column)
            rows = zip(*(theirs[each] for each in (*chosen, index)), strict=True)
            if Counter(rows) == expected[depth] and place((*chosen, index)):
                return True
        return False

    return place(())


def cell_overlap(gold: Sequence[ResultRow], found: Sequence[ResultRow]) -> float:
    """Return the F1 score (0.0–1.0) of the cells of two results, wherever the cells are; 0.0 if a result is empty."""
    ours, theirs = (Counter(cell for row in rows for cell in row) for rows in (gold, found))
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0


def statement_in(text: str) -> str:
    """Return the SQL in a model's reply: the last code fence, else the text from the first line with SELECT or WITH.

    The fence may be unclosed, because a reply can be cut off. Without a fence and without such a line, all of `text` is
    returned. Final semicolons are removed.
    """
    fenced = [body for body in _FENCED.findall(text) if body.strip()]
    found = fenced[-1] if fenced else text
    if not fenced and (started := _START.search(text)):
        found = started[0]
    return found.strip().rstrip(";").strip()
