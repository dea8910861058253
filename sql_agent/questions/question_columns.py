"""Turn a row of a user's file into a Question, by known column names or a mapping file.

A mapping file is TOML. A dotted path leads into nested columns:

    id = "uuid"
    answer = "output.reference"

    [evidence_item]       # the columns of each item of evidence
    table = "source"
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sql_agent.errors import ConfigError, DataError
from sql_agent.schemas import Evidence, Lang, Question
from sql_agent.system.files import read_toml
from sql_agent.system.messages import first_problem

# The columns from which each field of `Question` is read, in the order of search.
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "qid"),
    "question": ("question",),
    "answer": ("answer", "ground_truth"),
    "sql": ("sql", "gold_sql"),
    "evidence": ("evidence",),
    "task_type": ("task_type",),
    "lang": ("lang", "language"),
    "enough": ("enough",),
    "database": ("database", "db_id"),
}
EVIDENCE_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "table": ("table", "source_table"),
    "row_id": ("row_id",),
    "field": ("field", "column"),
    "quote": ("quote",),
}
_REQUIRED = ("id", "question", "answer")
_EVIDENCE_ITEM = "evidence_item"
_CHINESE = re.compile("[㐀-鿿]")


@dataclass(frozen=True)
class ColumnMapping:
    """Maps fields of `Question` to columns, or dotted paths, of a user's file."""

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)
    evidence_item: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> ColumnMapping:
        values = read_toml(path, "check data.mapping or --mapping")
        item = values.pop(_EVIDENCE_ITEM, {})
        if not isinstance(item, dict):
            raise ConfigError(
                f"{path}: {_EVIDENCE_ITEM} is not a table", hint=f"write [{_EVIDENCE_ITEM}], then table = …"
            )
        _check_names(path, values, SPELLINGS)
        _check_names(path, item, EVIDENCE_SPELLINGS)
        return cls(path, values, item)

    def check(self, file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raise ConfigError when a column of the mapping is empty in all `rows` of `file`."""
        for name, column in self.columns.items():
            if rows and all(value_at(row, column) is None for row in rows):
                raise ConfigError(
                    f"{self.path} maps {name} to the column {column}, which no row of {file} has",
                    hint=f"choose one of the columns {', '.join(rows[0])}",
                )


def question_of_row(row: Mapping[str, Any], where: str, mapping: ColumnMapping | None, default_id: str) -> Question:
    """Return the question in `row`, with `default_id` for a missing id. Raises DataError, which names `where`."""
    mapping = mapping or ColumnMapping(Path())
    if isinstance(messages := row.get("messages"), Sequence) and "question" not in row:
        row = {**row, **_of_conversation(messages)}
    columns = {name: _column(row, name, SPELLINGS, mapping.columns) for name in SPELLINGS}
    values = {name: value for name, column in columns.items() if (value := value_at(row, column)) is not None}
    for name, kinds in (("id", int), ("answer", int | float)):
        value = values.get(name)
        # pandas writes NaN for a missing value
        if isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value):
            values[name] = str(value) if isinstance(value, int) else f"{value:.15g}"  # 27.0 becomes "27"
    values.setdefault("id", default_id)
    for name in _REQUIRED:
        if not isinstance(values.get(name), str) or not values[name].strip():
            read = ", ".join(" or ".join(SPELLINGS[needed]) for needed in _REQUIRED[1:])
            raise DataError(
                f"{where}, column {columns[name]}: missing, empty or not a text",
                hint=f"each row needs {read}; a mapping file (data.mapping, --mapping) can name other columns",
            )
    if "sql" in values:
        values["sql"] = _joined_statements(values["sql"], f"{where}, column {columns['sql']}")
    if "evidence" in values:
        values["evidence"] = _evidence(values["evidence"], mapping, f"{where}, column {columns['evidence']}")
    values.setdefault("lang", language(values["question"]))
    try:
        question = Question.model_validate(values)
    except ValidationError as error:
        raise DataError(f"{where}, column {first_problem(error, columns)}", hint="correct the value") from None
    for name, value in question.model_dump().items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # no store accepts such a text: rollouts of the question would time out
            problem = "a text has half of a surrogate pair, such as \\ud800, and cannot be written as UTF-8"
            raise DataError(f"{where}, column {columns[name]}: {problem}", hint="correct the value") from None
    return question


def _of_conversation(messages: Sequence[Any]) -> dict[str, Any]:
    of_role: dict[str, list[str]] = {"user": [], "assistant": []}
    sql = []
    for message in messages:
        if isinstance(message, Mapping) and message.get("role") in of_role:
            if isinstance(message.get("content"), str):
                of_role[message["role"]].append(message["content"])
            for call in message.get("tool_calls") or ():
                with suppress(ValueError, TypeError, KeyError):
                    sql.append(json.loads(call["function"]["arguments"])["sql"])
    texts = {"question": of_role["user"][:1], "answer": of_role["assistant"][-1:]}
    return {name: found[0] for name, found in texts.items() if found} | ({"sql": sql} if sql else {})


def language(text: str) -> Lang:
    """Return "zh" if `text` contains a Chinese character, else "en"."""
    return "zh" if _CHINESE.search(text) else "en"


def _column(
    row: Mapping[str, Any], name: str, spellings: Mapping[str, tuple[str, ...]], mapped: Mapping[str, str]
) -> str:
    """Return the first column for the field `name` with a value in `row`, or the first if none has one."""
    known = (mapped[name],) if name in mapped else spellings[name]
    return next((column for column in known if value_at(row, column) is not None), known[0])


def value_at(row: Any, column: str) -> Any:
    """Return the value of `row` in `column`, a name or a dotted path; None if the value is missing."""
    if isinstance(row, Mapping) and column in row:
        return row[column]
    for part in column.split("."):
        row = row.get(part) if isinstance(row, Mapping) else None
    return row


def _joined_statements(value: Any, where: str) -> str | None:
    statements = [value] if isinstance(value, str) else value
    if not isinstance(statements, Sequence) or not all(isinstance(sql, str) for sql in statements):
        raise DataError(
            f"{where}: neither a text nor a list of texts", hint="give one SQL statement, or a list of them"
        )
    if len(statements) == 1:
        return str(statements[0])
    # The semicolon is on a separate line, because a statement may end with a comment.
    return "\n;\n".join(sql.strip().rstrip(";") for sql in statements if sql.strip()) or None


def _evidence(value: Any, mapping: ColumnMapping, where: str) -> tuple[Evidence, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DataError(f"{where}: not a list", hint=f"give objects with {', '.join(EVIDENCE_SPELLINGS)}")
    items = []
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise DataError(f"{where}.{number}: not an object", hint=f"give {', '.join(EVIDENCE_SPELLINGS)}")
        columns = {n: _column(item, n, EVIDENCE_SPELLINGS, mapping.evidence_item) for n in EVIDENCE_SPELLINGS}
        known = {name: found for name, column in columns.items() if (found := value_at(item, column)) is not None}
        try:
            items.append(Evidence.model_validate(known))
        except ValidationError as error:
            raise DataError(f"{where}.{number}.{first_problem(error, columns)}", hint="correct the value") from None
    return tuple(items)


def _check_names(path: Path, names: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name, column in names.items():
        if name not in known:
            raise ConfigError(f"{path}: a question has no field {name!r}", hint=f"the fields are {', '.join(known)}")
        if not isinstance(column, str) or not column:
            raise ConfigError(f"{path}: {name} is not the name of a column", hint=f'example: {name} = "my.column"')
