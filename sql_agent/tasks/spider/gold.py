"""Run gold statements, which are trusted because they come with the data, and cache how many rows each returns."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database.answers import fit
from sql_agent.database.sqlite.opening import read_only_connection
from sql_agent.reward.execution_match import ResultRow
from sql_agent.schemas import QueryLimits, Question
from sql_agent.system.files import atomic_write
from sql_agent.tasks.spider.folder import data_dir, named_database

FAILED = -1
MAX_ROWS = 100_000  # of a result that is compared
MAX_CHARS = 8_000_000
_PROGRESS_STEPS = 10_000  # steps of SQLite's virtual machine (about 0.1 ms) between two checks of the deadline

Counts = dict[str, dict[str, int]]  # of rows, by database and statement


def run_gold(path: Path, sql: str, deadline_s: float) -> list[ResultRow]:
    """Return all rows of a gold statement, with cells converted as for a statement of the model.

    Raises sqlite3.Error when the statement fails or takes longer than `deadline_s`.
    """
    with closing(read_only_connection(path)) as connection:
        return _rows(connection, sql, deadline_s)


def gold_results(settings: Settings, questions: Sequence[Question]) -> dict[str, int]:
    """Return by question id how many rows the gold statement returns; FAILED if it does not run.

    The counts are cached in `local.cache_dir` until one of the database files changes.
    """
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for question in questions:
        asked[question.database or ""].add(question.sql or "")
    cache = _cache_file(settings, sorted(asked))
    counts: Counts = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    missing = {name: of - counts.get(name, {}).keys() for name, of in asked.items()}
    if any(missing.values()):
        for name, statements in missing.items():
            counts.setdefault(name, {}).update(_count(named_database(settings, name), statements, settings))
        cache.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cache) as unfinished:
            unfinished.write_text(json.dumps(counts), encoding="utf-8")
    return {q.id: counts[q.database or ""][q.sql or ""] for q in questions}


def _count(path: Path, statements: set[str], settings: Settings) -> Mapping[str, int]:
    counts = {}
    with closing(read_only_connection(path)) as connection:
        for sql in statements:
            try:
                counts[sql] = len(_rows(connection, sql, settings.spider.deadline_s))
            except sqlite3.Error:
                counts[sql] = FAILED
    return counts


def _rows(connection: sqlite3.Connection, sql: str, deadline_s: float) -> list[ResultRow]:
    due = time.monotonic() + deadline_s
    connection.set_progress_handler(lambda: time.monotonic() > due, _PROGRESS_STEPS)
    limits = QueryLimits(max_rows=MAX_ROWS, max_chars=MAX_CHARS)
    with closing(connection.execute(sql)) as cursor:
        _, rows, truncated = fit((item[0] for item in cursor.description or ()), cursor, limits)
    if truncated:
        raise sqlite3.DataError(f"the result has more than {MAX_ROWS} rows or {MAX_CHARS} characters")
    return list(rows)


def _cache_file(settings: Settings, names: Sequence[str]) -> Path:
    """Return the cache file; its name contains a digest of the database files' sizes and times."""
    states = [(name, path.stat()) for name in names for path in (named_database(settings, name),)]
    state = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in states]
    digest = hashlib.sha256(repr((data_dir(settings).resolve(), state)).encode()).hexdigest()[:16]
    return settings.local.cache_dir / f"gold-{digest}.json"
