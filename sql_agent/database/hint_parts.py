"""Write the parts of a hint: names near to a text, and the part of the text that a column contains.

An example of the second is 糖浆 for 糖浆剂型, or "tablets" for "tablets form".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sql_agent.database.conditions import SearchedText
from sql_agent.database.name_index import Found, Name, comparable
from sql_agent.database.schema import fold

_NAMES_SHOWN = 3
_MAX_CHARS = 30  # of a text; a longer one is a sentence
_MOST_COUNTED = 4  # parts
_BETWEEN = "\0"  # joins cells, which rarely contain it
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"\w+")
# A part without a match says nothing.
_TWO_CHINESE = re.compile(r"[\u3400-\u9fff].*[\u3400-\u9fff]")
_LONG_WORD = re.compile(r"[^\W\d_]{4}")


def about_names(searched: SearchedText, found: Found) -> list[str]:
    """Return what the index found for a searched text: the same name, another name of a row, longer and near names."""
    here = (searched.table, searched.column)
    parts = []
    for name in found.exact:
        if place(name) != here:
            parts.append(f"'{searched.text}' is a {name.table}.{name.column}")
        elif name.text != searched.text:
            parts.append(f"it is written {name.column} = '{name.text}'")
    if found.aliases:
        parts.append(f"'{searched.text}' is another name of {_listed(found.aliases, here)}")
    if found.longer and not found.exact:
        part, longer = searched.text, _searched_first(found.longer, here)
        here_too = [name for name in longer if place(name) == place(longer[0]) and _holds(name, part)]
        if here_too:
            like = f"{_column(longer[0], here)} LIKE '%{part}%' finds"
            parts.append(f"{like} {len(here_too)}: {_texts(here_too)}")
        else:
            parts.append(f"nearest {_listed(longer, here)}")
    if found.near and not found.exact:
        parts.append(f"nearest {_listed(found.near, here)}")
    if found.abbreviated:
        parts.append(f"perhaps short for {_listed(found.abbreviated, here)}")
    return parts


def place(name: Name) -> tuple[str, str]:
    """Return the table and, folded, the column of a name."""
    return name.table, fold(name.column)


def _column(name: Name, here: tuple[str | None, str | None]) -> str:
    return name.column if place(name) == here else f"{name.table}.{name.column}"


def _searched_first(names: Sequence[Name], here: tuple[str | None, str | None]) -> list[Name]:
    return sorted(names, key=lambda name: place(name) != here)


def _listed(names: Sequence[Name], here: tuple[str | None, str | None]) -> str:
    """Return the first names of one column, preferably of the searched column: `med_name 'A', 'B'`."""
    first, *_ = ordered = _searched_first(names, here)
    return f"{_column(first, here)} {_texts([name for name in ordered if place(name) == place(first)])}"


def _texts(names: Sequence[Name]) -> str:
    return ", ".join(f"'{name.text}'" for name in names[:_NAMES_SHOWN])


def _holds(name: Name, part: str) -> bool:
    return comparable(part) in comparable(name.text)


def longest_part(text: str, cells: Sequence[str]) -> str | None:
    """Return the longest part of `text` that cells contain, or None; of equally long parts the one in most cells.

    A part of a Chinese text has at least two characters; a part of another text is whole words, and one of them has at
    least four letters. A part that more than half of `cells` contain says nothing; one that few contain may be there by
    chance, such as 不要.
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
    """Yield the places in `key` of the longest parts that `cells` contain."""
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
