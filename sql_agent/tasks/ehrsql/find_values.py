"""Find the values of the hospital database that a question names, so that the model need not guess them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

from sql_agent.database.schema import quoted
from sql_agent.database.sqlite.connection import read_only_connection
from sql_agent.system.files import prompt_file

_TOKEN = re.compile(r"[^\W_]+|[^\w\s]|_")
_MOST_TOKENS = 50  # maximum for one value in a question
_LEAST_CHARS = 2
_BUILDING = Lock()
_KEY = ("patients", "subject_id")  # the number by which questions name a patient
# Text columns whose values are codes, numbers or words that no question means.
_UNNAMED = frozenset({"abbreviation", "dose_val_rx", "event_type", "eventtype", "icd_code", "language", "linksto"})


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value of the database, which `str` writes as a condition of a statement."""

    table: str
    column: str
    value: str | int

    def __str__(self) -> str:
        literal = str(self.value) if isinstance(self.value, int) else "'" + self.value.replace("'", "''") + "'"
        return f"{self.table}.{self.column} = {literal}"


def find_values(path: Path, question: str) -> list[FoundValue]:
    """Return the values of the database at `path` that occur in `question`, word for word or by a synonym.

    Of overlapping values only the longest is returned, once for each column that has it.
    """
    with _BUILDING:  # one thread builds the index, which takes a second
        index = _index(path)
    text = question.casefold()
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    found: dict[FoundValue, None] = {}
    start = 0
    while start < len(tokens):
        for end in range(min(len(tokens), start + _MOST_TOKENS), start, -1):
            if values := index.get(text[tokens[start][0] : tokens[end - 1][1]]):
                found |= dict.fromkeys(values)
                start = end
                break
        else:
            start += 1
    return list(found)


@lru_cache(maxsize=4)
def _index(path: Path) -> Mapping[str, Sequence[FoundValue]]:
    """Return a map from a text in lower case to the database values that it names in a question."""
    index: dict[str, list[FoundValue]] = defaultdict(list)
    for value in _values(path):
        index[str(value.value).casefold()].append(value)
    for line in prompt_file(__file__, "synonyms.txt").splitlines():
        called, column, name = line.split("\t")
        index[called] = [value for value in index.get(name, ()) if f"{value.table}.{value.column}" == column]
    return index


def _values(path: Path) -> Iterator[FoundValue]:
    with closing(read_only_connection(path)) as connection:
        columns = connection.execute(
            "SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND (c.type LIKE '%char%' OR c.type LIKE '%text%') ORDER BY t.rowid, c.cid"
        ).fetchall()
        for table, column in [_KEY, *columns]:
            if column in _UNNAMED:
                continue
            name = quoted(column)
            rows = connection.execute(
                f"SELECT DISTINCT {name} FROM {quoted(table)} WHERE length({name}) >= {_LEAST_CHARS}"
            )
            yield from (FoundValue(table, column, value) for (value,) in rows)
