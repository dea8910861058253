"""Find the part of a text that stands in the cells of a column: 糖浆 of 糖浆剂型, "tablets" of "tablets form"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_MAX_CHARS = 30  # of a text; a longer one is a sentence
_MOST_COUNTED = 4  # parts
_BETWEEN = "\0"  # cells, which hold none as a rule
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"\w+")
# What a part must hold to say something.
_TWO_CHINESE = re.compile(r"[\u3400-\u9fff].*[\u3400-\u9fff]")
_LONG_WORD = re.compile(r"[^\W\d_]{4}")


def longest_part(text: str, cells: Sequence[str]) -> str | None:
    """Return the longest part of `text` that stands in cells; of equally long ones that of most; None without any.

    Of Chinese it has two characters or more, of other texts it is whole words, one of them of four letters or more. A
    part that more than half of `cells` hold says nothing; one that few hold may stand there by chance, as 不要 does.
    """
    key = text.lower() if len(text.lower()) == len(text) else text
    joined = _BETWEEN.join(cells).lower()
    standing = sorted(_standing(key, joined), key=lambda part: part[0] - part[1])
    lowered = joined.split(_BETWEEN)
    held = {part: sum(key[slice(*part)] in cell for cell in lowered) for part in standing[:_MOST_COUNTED]}
    telling = [part for part, count in held.items() if 2 * count <= len(cells)]
    best = min(telling, key=lambda part: (part[0] - part[1], -held[part]), default=None)
    return text[slice(*best)] if best is not None else None


def _standing(key: str, cells: str) -> Iterator[tuple[int, int]]:
    """Yield where the parts of `key` are that stand in `cells` and cannot be longer; each is looked for once."""
    is_chinese = _CHINESE.search(key) is not None
    needed = _TWO_CHINESE if is_chinese else _LONG_WORD
    units = [match.span() for match in (re.compile(r"\S") if is_chinese else _WORD).finditer(key[:_MAX_CHARS])]
    end = 0
    for first, (start, _) in enumerate(units):
        before, end = end, max(end, first)
        while end < len(units) and key[start : units[end][1]] in cells:
            end += 1
        if end > max(before, first) and needed.search(key[start : units[end - 1][1]]):
            yield start, units[end - 1][1]
