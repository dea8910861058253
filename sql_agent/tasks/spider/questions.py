"""Read questions in Spider's format, hold databases out of training, and leave out what cannot be learned from."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError, DataError
from sql_agent.questions.question_columns import ColumnMapping, check_text
from sql_agent.questions.question_files import load_questions, parquet_rows
from sql_agent.schemas import Question
from sql_agent.tasks.spider.folder import default_questions
from sql_agent.tasks.spider.gold import gold_results
from sql_agent.tasks.spider.hardness import hardness

_COLUMNS = ("db_id", "question", "query")


def read_questions(path: Path, mapping: ColumnMapping | None = None) -> list[Question]:
    """Read a JSON or parquet file in Spider's format, or question files of our own.

    A question's type is its hardness, its `database` the db_id, its answer the gold statement. Its id is made of the
    file's name and its number, from 0. Raises DataError when something is missing or wrong.
    """
    if mapping is not None or path.suffix not in {".json", ".parquet"}:
        return load_questions(path, mapping)
    rows = _json_rows(path) if path.suffix == ".json" else [row for _, row in parquet_rows(path)]
    if rows and "query" not in rows[0] and path.suffix == ".parquet":
        return load_questions(path)
    if not rows:
        raise DataError(f"{path} holds no question", hint=f"each needs {', '.join(_COLUMNS)}")
    return [_question(row, number, path) for number, row in enumerate(rows)]


def of_split(settings: Settings, split: str, questions: Sequence[Question]) -> list[Question]:
    """Return the questions of a file that belong to `split`: those of the databases held out are the validation.

    Of Spider's development split, a file of its own, all are the test. What training learns from leaves out questions
    whose gold statement fails or returns no row, because any statement without rows would be right.
    """
    held_out = set(held_out_databases(settings))
    if split == "test" and default_questions(settings, "test") != default_questions(settings, "train"):
        chosen = list(questions)
    else:
        chosen = [q for q in questions if (q.database in held_out) is (split != "train")]
    results = gold_results(settings, chosen)
    return [q for q in chosen if (results[q.id] > 0 if split == "train" else results[q.id] >= 0)]


def held_out_databases(settings: Settings) -> list[str]:
    """Return the databases whose questions are never trained on, chosen by `spider.val_seed`, in alphabetical order.

    Raises ConfigError when that leaves none to train on.
    """
    count = settings.spider.val_databases
    if count == 0:
        return []
    path = default_questions(settings, "train")
    if not path.exists():
        return []
    names = sorted({question.database for question in read_questions(path) if question.database})
    if count >= len(names):
        raise ConfigError(
            f"spider.val_databases={count}, but {path} asks about {len(names)} databases",
            hint="hold out fewer, or none with spider.val_databases=0 and a data.val_file",
        )
    return sorted(random.Random(settings.spider.val_seed).sample(names, count))


def _question(row: Mapping[str, Any], number: int, path: Path) -> Question:
    for column in _COLUMNS:
        if not isinstance(row.get(column), str) or not row[column].strip():
            raise DataError(
                f"{path}, question {number}, {column}: missing, empty or not a text",
                hint=f"each question needs {', '.join(_COLUMNS)}",
            )
        check_text(row[column], f"{path}, question {number}, {column}")
    gold = row["query"].strip().rstrip(";").strip()
    return Question(
        id=f"{path.stem}-{number}",
        question=row["question"].strip(),
        answer=gold,
        sql=gold,
        task_type=hardness(gold),
        database=row["db_id"],
    )


def _json_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}", hint="it is a list of objects") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} is not a list of objects", hint=f"each has {', '.join(_COLUMNS)}")
    return rows
