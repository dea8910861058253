"""Propose a mapping of a source's fields to the columns with similar names."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, get_args

from rapidfuzz import fuzz, process

from sql_agent.questions.question_columns import language
from sql_agent.schemas import Lang
from sql_agent.tasks.cells import texts_of
from sql_agent.tasks.medical.importers.mapping import READ, Published, TableMapping
from sql_agent.tasks.medical.medical_task import description
from sql_agent.tasks.medical.tables import ALIAS_COLUMNS, NAME_COLUMNS, TABLES
from sql_agent.tasks.read_records import Records, Rejected

_SAMPLE = 1000  # maximum number of texts of each field
_ALIKE = 90  # minimum similarity of two names, 0–100
_DIFFERENT, _LONGEST_NAME = 0.9, 60  # for names of rows: minimum share of distinct values, maximum median length
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[\u4e00-\u9fff]+")


@dataclass(frozen=True)
class ProposedField:
    """A field `name` of the table `source`, with an example of its text.

    The field would fill `column` of `table`, and `reason` says why. All three are "" if the field fills no column.
    """

    source: str
    name: str
    example: str
    table: str = ""
    column: str = ""
    reason: str = ""


def propose(records: Records) -> list[ProposedField]:
    """Return all fields of `records`. A medical table is filled only by the source table with most matching fields."""
    options = [
        max((_fields_of(source, texts, table) for table in TABLES), key=_filled_columns)
        for source, texts in _samples(records).items()
    ]
    fields: list[ProposedField] = []
    for found in sorted(options, key=_filled_columns, reverse=True):
        taken = {field.table for field in fields if field.table}
        fields += [replace(field, table="", column="", reason="") if field.table in taken else field for field in found]
    return fields


def mapping_toml(fields: Sequence[ProposedField]) -> str:
    lines = [] if any(language(field.name + field.example) == "zh" for field in fields) else ['separator = "; "']
    for table in dict.fromkeys(field.table for field in fields if field.table):
        of_table = [field for field in fields if field.table == table]
        lines += ["", f"[{table}]", *([f"from = {_value(of_table[0].source)}"] if of_table[0].source else [])]
        for column in TABLES[table]:
            names = [field.name for field in of_table if field.column == column]
            if names:
                lines.append(f"{column} = {_value(names if len(names) > 1 else names[0])}")
                if len(names) > 1 and column == ALIAS_COLUMNS[table]:
                    lines.append(f"labelled = {_value([column])}")
            elif column == NAME_COLUMNS[table]:
                lines.append(f'{column} = ""  # write here the field that names a row')
    return "\n".join(lines).strip()


def _samples(records: Records) -> dict[str, dict[str, list[str]]]:
    """Return the first texts of each field, by table of the source."""
    samples: dict[str, dict[str, list[str]]] = {}
    for record in records:
        if isinstance(record, Rejected):
            continue
        of_table = samples.setdefault(record.table, {})
        for name, value in _flat(record.fields):
            texts = of_table.setdefault(name, [])
            if len(texts) < _SAMPLE:
                with suppress(TypeError):  # a list of objects fills no column
                    texts += texts_of(value)
    return samples


def _flat(fields: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all fields, nested ones as "more.uses"."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _fields_of(source: str, samples: Mapping[str, Sequence[str]], table: str) -> list[ProposedField]:
    """Return the fields of the source table `source`, each with the column of `table` that it would fill."""
    fields = []
    for name, texts in samples.items():
        column, reason = _column(name.rpartition(".")[2], _known_words(table))
        example = texts[0] if texts else ""
        fields.append(ProposedField(source, name, example, table if column else "", column, reason))
    needed = NAME_COLUMNS[table]
    if not any(field.column == needed for field in fields):
        for index, field in enumerate(fields):
            if not field.column and (share := _names_rows(samples[field.name])):
                reason = f"{share:.0%} of its values are different"
                fields[index] = replace(field, table=table, column=needed, reason=reason)
                break
    return fields


def _names_rows(texts: Sequence[str]) -> float:
    """Return the share of distinct texts if `texts` can be names of rows, else 0."""
    if not texts or median(map(len, texts)) > _LONGEST_NAME or any(text.isdigit() for text in texts):
        return 0.0
    share = len(set(texts)) / len(texts)
    return share if share >= _DIFFERENT else 0.0


def _column(name: str, known: Mapping[str, str]) -> tuple[str, str]:
    """Return the column that the field `name` would fill, and the reason; ("", "") if no column has a similar name."""
    wanted = _normal(name)
    if wanted in known:
        column = known[wanted]
        return column, "the same name" if wanted == _normal(column) else "a known synonym"
    scorer = fuzz.partial_ratio if language(wanted) == "zh" else fuzz.token_set_ratio
    alike = process.extract(wanted, [*known], scorer=scorer, score_cutoff=_ALIKE, limit=None) if len(wanted) > 1 else []
    if not alike:
        return "", ""
    word = max((word for word, *_ in alike), key=lambda word: fuzz.ratio(wanted, word))
    return known[word], f"like “{word}”"


@cache
def _known_words(table: str) -> Mapping[str, str]:
    """Return a mapping from known names to the columns of `table`."""
    synonyms = tomllib.loads(Path(__file__).with_name("synonyms.toml").read_text("utf-8"))
    words = [(word, column) for column in READ[table] for word in (column, *synonyms.get(column, ()))]
    for lang in get_args(Lang):
        described = description(lang).tables[table].columns.items()
        words += [(word, name) for name, column in described for word in (column.label, column.plural) if word]
    known = {_normal(word): column for word, column in words if column in READ[table]}
    for name in get_args(Published):
        mapped = TableMapping.packaged(name).tables.get(table)
        for column, fields in mapped.columns.items() if mapped else ():
            for field in fields:
                known.setdefault(_normal(field.rpartition(".")[2]), column)
    return known


def _filled_columns(fields: Sequence[ProposedField]) -> int:
    return len({field.column for field in fields if field.column})


def _normal(name: str) -> str:
    """Return the words of `name` in lower case: "sideEffects" becomes "side effects"."""
    return " ".join(_WORDS.findall(name)).lower()


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # TOML shares these forms with JSON
