"""Say which names a text may mean that was searched for: the parts of a hint that come from the index of names."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.database.conditions import SearchedText
from sql_agent.database.name_index import Found, Name, comparable
from sql_agent.database.schema import fold

_NAMES_SHOWN = 3


def about_names(searched: SearchedText, found: Found) -> list[str]:
    """Return what the index has for a text that was searched: as it is, under another name, in longer names, near."""
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
    """Return the first names of one column, the one that was searched if it has any: `med_name 'A', 'B'`."""
    first, *_ = ordered = _searched_first(names, here)
    return f"{_column(first, here)} {_texts([name for name in ordered if place(name) == place(first)])}"


def _texts(names: Sequence[Name]) -> str:
    return ", ".join(f"'{name.text}'" for name in names[:_NAMES_SHOWN])


def _holds(name: Name, part: str) -> bool:
    return comparable(part) in comparable(name.text)
