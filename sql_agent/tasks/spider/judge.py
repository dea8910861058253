"""Grade a SQL statement by execution match: compare its result with the gold statement's result.

Gold statements run without the guard, because they come with the data.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool, open_database
from sql_agent.database.answers import DATABASE_CHANGED, fit
from sql_agent.database.sqlite.connection import read_only_connection
from sql_agent.errors import JudgeError
from sql_agent.reward import JudgeCase, Verdict
from sql_agent.reward.execution_match import (
    ResultRow,
    cell_overlap,
    comparable,
    is_ordered,
    results_match,
    statement_in,
)
from sql_agent.reward.judges.items import Reader, Words
from sql_agent.schemas import Lang, QueryLimits, Question
from sql_agent.system.files import atomic_write
from sql_agent.tasks.spider.folder import SCHEMA, database_variants, default_database, named_database

_MAX_ROWS = 100_000  # maximum for a compared result
_MAX_CHARS = 8_000_000
_PROGRESS_STEPS = 10_000  # instructions of SQLite (about 0.1 ms) between two checks of the deadline
_CACHED_RESULTS = 2048  # maximum number of results of gold statements in memory
_OPEN_DATABASES = 16
_THREADS = 4


@dataclass(frozen=True)
class Comparison:
    """How a data set's evaluator compares results.

    `rules` names the rules and their version. `as_run` rewrites a statement before it runs. `equal` returns whether the
    gold result and the found result are equal; its third argument is the gold statement.
    """

    rules: str
    as_run: Callable[[str], str]
    equal: Callable[[Sequence[ResultRow], Sequence[ResultRow], str], bool]


class ExecutionJudge:
    """Scores a statement 1.0 if its result equals the gold statement's in every variant of the database, else less.

    A wrong result scores 0.0 unless `spider.partial_credit` or `spider.penalty` is set. A refusal in `words` scores 1.0
    if the question has no gold statement, else 0.0. The statement runs again, with larger limits than in the tool,
    unless the agent already received the whole result.
    """

    name = "execution"

    def __init__(self, settings: Settings, words: Mapping[Lang, Words], comparison: Comparison) -> None:
        self._all_settings, self._settings, self._comparison = settings, settings.spider, comparison
        self._readers = {lang: Reader(of_lang) for lang, of_lang in words.items()}
        limits = QueryLimits(deadline_s=self._settings.deadline_s, max_rows=_MAX_ROWS, max_chars=_MAX_CHARS)
        self._databases = DatabasePool(
            lambda path: open_database(str(path), SCHEMA, limits, hinted=False), keep=_OPEN_DATABASES
        )
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="compare")
        self._gold = lru_cache(maxsize=_CACHED_RESULTS)(run_gold)

    @property
    def identity(self) -> str:
        """The judge's name and comparison rules. Evaluations with different identities are never compared."""
        s = self._settings
        penalty = f":penalty={s.penalty:g}" if s.penalty else ""
        return f"{self._comparison.rules}:partial={s.partial_credit:g}{penalty}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Compare the results. Raises JudgeError when the gold statement fails or the database file was changed."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._grade, case)

    def _grade(self, case: JudgeCase) -> Verdict:
        gold_sql, sql = case.question.sql, statement_in(case.answer)
        if self._readers[case.question.lang].is_refusal(sql):
            score, reason = (1.0, "rightly") if gold_sql is None else (0.0, "but the database has the answer")
            return Verdict(score=score, reason=f"abstained, {reason}")
        if gold_sql is None:
            return self._wrong("the database does not have the answer")
        if not sql:
            return self._wrong("there is no statement")
        name, settings = case.question.database, self._all_settings
        paths = database_variants(default_database(settings) if name is None else named_database(settings, name))
        compared = [self._compare(path, gold_sql, sql, case if path == paths[0] else None) for path in paths]
        return min(compared, key=lambda verdict: verdict.score)

    def _compare(self, path: Path, gold_sql: str, sql: str, case: JudgeCase | None) -> Verdict:
        as_run = self._comparison.as_run
        try:
            gold = self._gold(path, as_run(gold_sql), self._settings.deadline_s)
        except sqlite3.Error as error:
            raise JudgeError(
                f"the gold statement {gold_sql!r} fails in {path}: {error}",
                hint="correct the gold statement, or raise spider.deadline_s",
            ) from error
        asked = as_run(sql)
        known = _known_rows(asked, case) if case else None
        found = self._rows(path, asked) if known is None else known
        if isinstance(found, str):
            return self._wrong(found)
        if self._comparison.equal(gold, found, gold_sql):
            return Verdict(score=1.0, reason="the results are equal")
        reason = f"the gold statement returns {_size(gold)}, the answer's {_size(found)}"
        return self._wrong(reason, self._settings.partial_credit * cell_overlap(gold, found))

    def _wrong(self, reason: str, credit: float = 0.0) -> Verdict:
        return Verdict(score=credit - self._settings.penalty, reason=reason)

    def _rows(self, path: Path, sql: str) -> list[ResultRow] | str:
        """Return the whole result of a statement, or its error. Raises JudgeError if the database file was changed."""
        with self._databases.of(str(path)) as database:
            answer = database.query(sql)
        if answer.error is not None and answer.error.kind == DATABASE_CHANGED:
            raise JudgeError(answer.error.message, hint=answer.error.hint)
        if answer.error is not None:
            return f"{answer.error.kind}: {answer.error.message}"
        return "the result is too large to be compared" if answer.truncated else list(answer.records)


def make_judge(settings: Settings, words: Mapping[Lang, Words], *, alone: bool = False) -> ExecutionJudge:
    """Return the execution judge; `judge.name` is ignored, because only the result shows if a statement is right."""
    public = Comparison(
        rules="execution/1:public:distinct=False",
        as_run=comparable,
        equal=lambda gold, found, sql: results_match(gold, found, ordered=is_ordered(sql)),
    )
    return ExecutionJudge(settings, words, public)


def run_gold(path: Path, sql: str, deadline_s: float) -> list[ResultRow]:
    """Return all rows of a gold statement, with cells converted as in the tool's results.

    Raises sqlite3.Error when the statement fails or takes longer than `deadline_s`.
    """
    due = time.monotonic() + deadline_s
    limits = QueryLimits(max_rows=_MAX_ROWS, max_chars=_MAX_CHARS)
    with closing(read_only_connection(path)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > due, _PROGRESS_STEPS)
        cursor = connection.execute(sql)
        _, rows, truncated = fit((item[0] for item in cursor.description or ()), cursor, limits)
    if truncated:
        raise sqlite3.DataError(f"the result has more than {_MAX_ROWS} rows or {_MAX_CHARS} characters")
    return list(rows)


def gold_row_counts(settings: Settings, questions: Sequence[Question]) -> dict[str, int | None]:
    """Return the number of rows of each gold statement by question id; None for a statement that fails.

    The numbers are cached in `local.cache_dir`, by path, size and modification time of the database, and by statement.
    """
    file = settings.local.cache_dir / "gold-counts.json"
    cache: dict[str, dict[str, int | None]] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    paths = {name: named_database(settings, name) for name in {question.database or "" for question in questions}}
    counts = {}
    for name, path in paths.items():
        stat = path.stat()
        counts[name] = cache.setdefault(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}", {})
    before = sum(map(len, cache.values()))
    for question in questions:
        name, sql = question.database or "", question.sql or ""
        if sql not in counts[name]:
            counts[name][sql] = None
            with suppress(sqlite3.Error):
                counts[name][sql] = len(run_gold(paths[name], sql, settings.spider.deadline_s))
    if sum(map(len, cache.values())) > before:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as unfinished:
            unfinished.write_text(json.dumps(cache), "utf-8")
    return {question.id: counts[question.database or ""][question.sql or ""] for question in questions}


def _known_rows(sql: str, case: JudgeCase) -> list[ResultRow] | None:
    """Return the result of `sql` if the agent already received it untruncated, else None."""
    for call in case.calls:
        if call.sql == sql and call.answer.status == "ok" and not call.answer.truncated:
            return list(call.answer.records)
    return None


def _size(rows: list[ResultRow]) -> str:
    columns = len(rows[0]) if rows else 0
    return f"{len(rows)} rows of {columns} columns" if rows else "no row"
