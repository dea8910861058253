"""Read and write question files: parquet and JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sql_agent.errors import DataError
from sql_agent.questions.question_columns import ColumnMapping, question_of_row
from sql_agent.schemas import Question
from sql_agent.system.files import atomic_write, filled_lines

_EVIDENCE = pa.struct([("table", pa.string()), ("row_id", pa.int64()), ("field", pa.string()), ("quote", pa.string())])
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "question", "answer", "sql")),
        ("evidence", pa.list_(_EVIDENCE)),
        ("task_type", pa.string()),
        ("lang", pa.string()),
        ("enough", pa.int64()),
        ("database", pa.string()),
    ]
)


def load_questions(path: str | Path, mapping: ColumnMapping | None = None) -> list[Question]:
    """Read the questions of a .parquet or .jsonl file.

    `mapping` maps fields to columns. A field that it lacks is read from a column in `question_columns.SPELLINGS`. A
    question and a reference answer are required. Row 3 of mine.jsonl gets the id "mine-3" if it has none. Raises
    DataError for a file or a row that is wrong.
    """
    path = Path(path)
    questions: list[Question] = []
    row_of_id: dict[str, int] = {}
    rows = _rows(path)
    if mapping is not None:
        mapping.check(path, [row for _, row in rows])
    for number, row in rows:
        question = question_of_row(row, f"{path}, row {number}", mapping, f"{path.stem}-{number}")
        if question.id in row_of_id:
            raise DataError(
                f"{path}, row {number}, column id: {question.id!r} is also in row {row_of_id[question.id]}",
                hint="give each question a different id",
            )
        row_of_id[question.id] = number
        questions.append(question)
    if not questions:
        raise DataError(f"{path} contains no question", hint="each row needs question and answer")
    return questions


def write_parquet(path: Path, questions: Sequence[Question]) -> None:
    """Write one column for each field of `Question`; `evidence` is a list of structs. Replaces the file atomically."""
    rows = [question.model_dump(mode="json") for question in questions]
    with atomic_write(path) as unfinished:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), unfinished)


def write_jsonl(path: Path, rows: Iterable[tuple[Question, Mapping[str, str]]]) -> None:
    """Write a JSON object per line: the question's fields and the extra fields. Replaces the file atomically."""
    with atomic_write(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="\n") as file:
        for question, extra in rows:
            file.write(json.dumps({**question.model_dump(mode="json"), **extra}, ensure_ascii=False) + "\n")


def write_splits(folder: Path, splits: Mapping[str, Sequence[Question]]) -> None:
    """Write SPLIT.parquet for each split, and all questions with their split to qa_dataset.jsonl."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, questions in splits.items():
            write_parquet(folder / f"{split}.parquet", questions)
        write_jsonl(
            folder / "qa_dataset.jsonl",
            ((question, {"split": split}) for split, questions in splits.items() for question in questions),
        )
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error}", hint="choose another folder with --out") from error


def _rows(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    if path.suffix not in {".parquet", ".jsonl"}:
        raise DataError(f"{path} is neither .parquet nor .jsonl", hint="convert the file to one of these formats")
    return parquet_rows(path) if path.suffix == ".parquet" else _jsonl_rows(path)


def parquet_rows(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from None
    except pa.ArrowException as error:
        hint = "export it again as Parquet, or give a file in another supported format"
        raise DataError(f"{path} is not a parquet file: {error}", hint=hint) from None
    try:
        return list(enumerate(table.to_pylist(), 1))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} contains text that is not UTF-8: {error}", hint="write the texts as UTF-8") from None


def _jsonl_rows(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    rows: list[tuple[int, Mapping[str, Any]]] = []
    for number, line in filled_lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError for deep nesting
            raise DataError(
                f"{path}, row {number} cannot be read as JSON: {error}", hint="write one JSON object a line"
            ) from None
        if not isinstance(row, dict):
            more = "; to convert an array: jq -c '.[]' FILE > LINES.jsonl" if isinstance(row, list) else ""
            raise DataError(f"{path}, row {number} is not a JSON object", hint=f"write one JSON object a line{more}")
        rows.append((number, row))
    return rows
