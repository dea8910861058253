"""Turn a record of a source into a row of one of the two tables, by a mapping file.

A mapping file is TOML, with a section for each table:

    separator = "; "                # between the parts of a cell; default "；"

    [drugs_info]
    from = "products"               # the source's table, if it has several
    when = ["Brand", "Generic"]     # only records with one of these fields; default: all
    med_name = ["Brand", "Generic"] # the name: the first of these fields with a text
    indication = "Uses"             # another column: a field, or several, one after the other
    labelled = ["description"]      # columns in which the name of its field precedes each part
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sql_agent.errors import ConfigError
from sql_agent.system.messages import first_problem
from sql_agent.tasks.medical.importers.sources import Rejected, SourceRecord
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES

_MAPPINGS = Path(__file__).parent / "mappings"
# Cells that say only that there is nothing. Not 无 ("none"), which answers a question about contraindications.
NULL_WORDS = frozenset({"n/a", "-", "--", "–", "—", "none", "null", "nan", "空", "无数据", "暂无数据"})
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-f]+|[a-z]\w*);", re.IGNORECASE)
_INLINE = frozenset({"a", "b", "em", "font", "i", "small", "span", "strong", "sub", "sup", "u"})  # inside a word
# Only known tags, because "<b and a>" in "a<b and a>c" is none.
_TAG = re.compile(
    rf"</?({'|'.join(sorted(_INLINE))}|blockquote|br|center|div|h[1-6]|hr|img|li|ol|p|pre|table|tbody|td|th|thead|tr|ul)"
    r"(?:\s+[\w:-]+\s*=[^<>]*)?\s*/?>",
    re.IGNORECASE,
)
# Columns that are never imported: the row's number, and when it was written.
NOT_READ = frozenset({"id", "created_at", "create_at", "update_at"})


class _Table(BaseModel):
    """A section of a mapping file; every key that is not named here is a column."""

    model_config = ConfigDict(extra="allow")
    source: str = Field("", alias="from")
    when: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()

    def takes(self, record: SourceRecord) -> bool:
        """Return whether `record` is of this table."""
        of_table = not record.table or not self.source or record.table == self.source
        return of_table and (not self.when or any(record.get(field) for field in self.when))

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        given = (self.model_extra or {}).items()
        return {column: (fields,) if isinstance(fields, str) else tuple(fields) for column, fields in given}


@dataclass(frozen=True)
class MedicalRow:
    """The texts of one row of `table`, by column, and the place of its record in the source."""

    place: str
    table: str
    values: Mapping[str, str]

    @property
    def key(self) -> tuple[object, ...]:
        """Return what two equal rows share."""
        return (self.table, *sorted(self.values.items()))


@dataclass(frozen=True)
class TableMapping:
    """Which fields of a record become which columns, by table."""

    tables: Mapping[str, _Table]
    separator: str = "；"

    @classmethod
    def load(cls, path: Path) -> TableMapping:
        """Read a mapping file. Raises ConfigError for a fault in it."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the mapping {path}: {error}") from error
        separator = content.pop("separator", "；")
        hint = "docs/data.md has an example"
        if unknown := sorted(content.keys() - TABLES.keys()):
            raise ConfigError(f"{path}: there is no table {', '.join(unknown)}", hint=f"tables: {', '.join(TABLES)}")
        tables = {}
        for name, section in content.items():
            try:
                tables[name] = _Table.model_validate(section)
            except ValidationError as error:
                raise ConfigError(f"{path}: {name}: {first_problem(error)}", hint=hint) from error
            _check(path, name, tables[name])
        if not isinstance(separator, str) or not tables:
            raise ConfigError(f"{path} maps no table, or its separator is not a text", hint=hint)
        return cls(tables, separator)

    @classmethod
    def packaged(cls, name: str) -> TableMapping:
        """Return the packaged mapping `name`: cmekg or openfda."""
        return cls.load(_MAPPINGS / f"{name}.toml")

    @classmethod
    def same_names(cls) -> TableMapping:
        """Return the mapping for sources with our names of tables and columns."""
        sections = {
            table: {"from": table, "when": [NAME_COLUMNS[table]]}
            | {name: name for name in columns if name not in NOT_READ}
            for table, columns in TABLES.items()
        }
        return cls({table: _Table.model_validate(section) for table, section in sections.items()})

    @property
    def sources(self) -> list[str]:
        """Return the tables of a source database that are read."""
        return [table.source or name for name, table in self.tables.items()]

    @property
    def fields(self) -> set[str]:
        """Return the fields that are read."""
        return {name for table in self.tables.values() for names in table.columns.values() for name in names}

    def row(self, record: SourceRecord) -> MedicalRow | Rejected:
        """Return the row that `record` becomes, or why it is rejected."""
        name = next((name for name, table in self.tables.items() if table.takes(record)), None)
        if name is None:
            needed = [field for table in self.tables.values() for field in table.when]
            reason = f"it is not a row of {' or '.join(self.tables)}: it has none of the fields that tell"
            return Rejected(record.place, reason, ", ".join(needed))
        table, values = self.tables[name], dict[str, str]()
        for column, fields in table.columns.items():
            try:
                parts = [(field, text) for field in fields for text in _texts(record.get(field))]
            except TypeError as error:
                return Rejected(record.place, f"{column} is not a text", str(error))
            if not parts:
                continue
            if column == NAME_COLUMNS[name]:
                values[column] = parts[0][1]
            else:
                shown = [f"{field}：{text}" if column in table.labelled else text for field, text in parts]
                values[column] = self.separator.join(dict.fromkeys(shown))
        problem = _problem(name, values, table)
        return Rejected(record.place, problem) if problem else MedicalRow(record.place, name, values)


def _check(path: Path, name: str, table: _Table) -> None:
    known = [column for column in TABLES[name] if column not in NOT_READ]
    unknown = sorted({*table.columns, *table.labelled} - {*known})
    if unknown:
        raise ConfigError(f"{path}: {name} has no column {', '.join(unknown)}", hint=f"columns: {', '.join(known)}")
    if NAME_COLUMNS[name] not in table.columns:
        raise ConfigError(f"{path}: {name} needs {NAME_COLUMNS[name]}", hint="say which field holds the name")


def _problem(name: str, values: Mapping[str, str], table: _Table) -> str | None:
    """Return why `values` cannot be a row of the table `name`."""
    column = NAME_COLUMNS[name]
    if column not in values:
        return f"no {column}: {', '.join(table.columns[column])} is empty"
    for column, text in values.items():
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            return f"{column} contains bytes that are not UTF-8 text"
    return "it has a name and nothing else" if len(values) == 1 else None


def _texts(value: Any) -> Sequence[str]:
    """Return the texts of a field: none, one, or those of a list. Raises TypeError for anything else."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str | int | float):
        raise TypeError(f"a {type(value).__name__} is not a text")
    text = plain_text(str(value))
    return [text] if text and text.casefold() not in NULL_WORDS else []


def plain_text(text: str) -> str:
    """Return `text` without HTML entities and tags, with single spaces: "a&#39;s<br/>b" becomes "a's b"."""
    if "&" in text:
        text = _ENTITY.sub(lambda match: unescape(match[0]), text)
    if "<" in text:
        text = _TAG.sub(lambda match: "" if match[1].lower() in _INLINE else " ", text)
    return " ".join(text.split())
