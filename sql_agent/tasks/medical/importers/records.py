"""Define what readers of sources yield: records, and what could not be read, each with its place in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """Holds the fields of one record of a source; a dotted name leads into nested ones.

    `group` is the table of the source that it is from, empty where a source has only one.
    """

    place: str
    fields: Mapping[str, Any]
    group: str = ""

    def get(self, name: str) -> Any:
        """Return the field `name`, or None where the record has none."""
        if name in self.fields:
            return self.fields[name]
        value: Any = self.fields
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True)
class Row:
    """Holds the texts of one row of `table`, by column."""

    place: str
    table: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Rejected:
    """Says why a record is not imported; `detail` is what differs between records of the same reason."""

    place: str
    reason: str
    detail: str = ""


Records = Iterator[Record | Rejected]
