"""Read questions in Spider's format, choose held-out databases, and rate the hardness of statements."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlglot import exp

from sql_agent.config.settings import Settings
from sql_agent.database.guard import parse
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import ConfigError, DataError, QueryError
from sql_agent.questions.question_columns import ColumnMapping
from sql_agent.questions.question_files import load_questions, parquet_rows
from sql_agent.schemas import Question
from sql_agent.tasks.spider.folder import default_questions, only_database
from sql_agent.tasks.spider.judge import gold_row_counts

_COLUMNS = ("db_id", "question", "query")
_AGGREGATES = frozenset({"max", "min", "count", "sum", "avg"})


def read_questions(
    path: Path, mapping: ColumnMapping | None = None, *, kind: Callable[[str, str], str] | None = None
) -> list[Question]:
    """Read a JSON or parquet file in Spider's format, or a question file in a format of `load_questions`.

    `kind` returns the `task_type` for a question and its gold statement; the default is the statement's hardness.
    `database` is the db_id, `answer` the gold statement. A missing id becomes the file's name and the question's index
    from 0, as in "dev-7". Raises DataError for a missing or wrong value.
    """
    if mapping is not None or path.suffix not in {".json", ".parquet"}:
        return load_questions(path, mapping)
    rows = _json_rows(path) if path.suffix == ".json" else [row for _, row in parquet_rows(path)]
    if rows and "query" not in rows[0] and path.suffix == ".parquet":
        return load_questions(path)
    if not rows:
        raise DataError(f"{path} contains no question", hint=f"each question needs {', '.join(_COLUMNS)}")
    kind = kind or (lambda _text, gold: hardness(gold))
    return [_question(row, number, path, kind) for number, row in enumerate(rows)]


def of_split(settings: Settings, split: str, questions: Sequence[Question]) -> list[Question]:
    """Return the questions of `split` from a file's `questions`.

    The questions of the training file about held-out databases are the validation questions. Any other file is one
    split. A question is left out if its gold statement fails, and in training also if the gold statement returns no
    row, because any statement without rows would be right. A question without a gold statement is kept.
    """
    held_out = set(held_out_databases(settings))
    if split != "train" and default_questions(settings, split) != default_questions(settings, "train"):
        chosen = list(questions)
    else:
        chosen = [q for q in questions if (q.database in held_out) is (split != "train")]
    counts = gold_row_counts(settings, [q for q in chosen if q.sql is not None])
    return [q for q in chosen if q.sql is None or (counts[q.id] if split == "train" else counts[q.id] is not None)]


def held_out_databases(settings: Settings) -> list[str]:
    """Return the sorted names of `spider.val_databases` databases for validation, always the same ones.

    Raises ConfigError when no database is left to train on.
    """
    count = settings.spider.val_databases
    if count == 0 or only_database(settings) is not None:
        return []
    path = default_questions(settings, "train")
    if not path.exists():
        return []
    names = sorted({question.database for question in read_questions(path) if question.database})
    if count >= len(names):
        raise ConfigError(
            f"spider.val_databases={count}, but {path} asks about {len(names)} databases",
            hint="lower spider.val_databases; 0 needs a data.val_file, and a folder with one database needs a dev.json",
        )
    return sorted(random.Random(0).sample(names, count))


def _question(row: Mapping[str, Any], number: int, path: Path, kind: Callable[[str, str], str]) -> Question:
    for column in _COLUMNS:
        if not isinstance(row.get(column), str) or not row[column].strip():
            raise DataError(
                f"{path}, question {number}, {column}: missing, empty or not a text",
                hint=f"each question needs {', '.join(_COLUMNS)}",
            )
    gold, text = row["query"].strip().rstrip(";").strip(), row["question"].strip()
    return Question(
        id=str(row.get("id") or f"{path.stem}-{number}"),
        question=text,
        answer=gold,
        sql=gold,
        task_type=kind(text, gold),
        database=row["db_id"],
    )


def _json_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}", hint="write a JSON list of objects") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} is not a list of objects", hint=f"each object needs {', '.join(_COLUMNS)}")
    return rows


@lru_cache(maxsize=20_000)
def hardness(sql: str) -> str:
    """Return the level of a gold statement: easy, medium, hard or extra; extra also if it cannot be parsed.

    As in Spider's evaluation (Yu et al. 2018, arXiv:1809.08887, as published with the data), the level depends on the
    number of components of the outer SELECT (WHERE, GROUP BY, ORDER BY, LIMIT, joins, OR, LIKE), of nested queries, and
    of clauses with several parts.
    """
    try:
        tree = parse(sql, SQLITE)
    except QueryError:
        return "extra"
    select = _first_select(tree)
    where, having = _conditions(select, "where"), _conditions(select, "having")
    conditions = [*_join_conditions(select), *where, *having]
    components = _components(select, conditions)
    nested = sum(condition.find(exp.Select) is not None for condition in conditions) + (tree is not select)
    several = _several(select, where, having)
    if nested == 0 and components <= 1 and several == 0:
        return "easy"
    if nested == 0 and ((several <= 2 and components <= 1) or (components <= 2 and several < 2)):
        return "medium"
    if (
        (nested == 0 and several > 2 and components <= 2)
        or (nested == 0 and 2 < components <= 3 and several <= 2)
        or (nested <= 1 and components <= 1 and several == 0)
    ):
        return "hard"
    return "extra"


def _first_select(tree: exp.Expr) -> exp.Expr:
    """Return the outer SELECT: the first SELECT of a UNION, INTERSECT or EXCEPT, whose second one counts as nested."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree


def _components(select: exp.Expr, conditions: list[exp.Expr]) -> int:
    clauses = sum(select.args.get(name) is not None for name in ("where", "group", "order", "limit"))
    alternatives = len({id(node) for condition in conditions for node in _alternatives(condition)})
    likes = sum(isinstance(_positive(condition), exp.Like) for condition in conditions)
    return clauses + len(select.args.get("joins") or ()) + alternatives + likes


def _several(select: exp.Expr, where: list[exp.Expr], having: list[exp.Expr]) -> int:
    outputs = select.expressions
    group = select.args.get("group")
    order = select.args.get("order")
    aggregates = sum(map(_is_aggregate, outputs))
    aggregates += sum(isinstance(condition, exp.Not) for condition in where)
    aggregates += sum(map(_is_aggregate, order.expressions)) if order is not None else 0
    aggregates += max(0, len(having) - 1)  # the published code counts each AND and OR of a HAVING as an aggregate
    return (aggregates > 1) + (len(outputs) > 1) + (len(where) > 1) + (group is not None and len(group.expressions) > 1)


def _join_conditions(select: exp.Expr) -> list[exp.Expr]:
    return [condition for join in select.args.get("joins") or () for condition in _flat(join.args.get("on"))]


def _conditions(select: exp.Expr, clause: str) -> list[exp.Expr]:
    found = select.args.get(clause)
    return list(_flat(found.this)) if found is not None else []


def _flat(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the operands of nested ANDs and ORs."""
    if isinstance(condition, exp.And | exp.Or):
        yield from _flat(condition.left)
        yield from _flat(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _flat(condition.this)
    elif condition is not None:
        yield condition


def _alternatives(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the OR nodes of the clause that contain `condition`."""
    node = condition.parent
    while isinstance(node, exp.And | exp.Or | exp.Paren):
        if isinstance(node, exp.Or):
            yield node
        node = node.parent


def _positive(condition: exp.Expr) -> exp.Expr:
    return condition.this if isinstance(condition, exp.Not) else condition


def _is_aggregate(output: exp.Expr) -> bool:
    node = output.this if isinstance(output, exp.Ordered) else output.unalias()
    return isinstance(node, exp.Anonymous | exp.Func) and node.name.lower() in _AGGREGATES
