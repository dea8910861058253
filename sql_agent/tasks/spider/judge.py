"""Grade a statement by execution match: it is right when it returns the same result as the gold statement."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from sql_agent.config.sections import SpiderSettings
from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool, open_database
from sql_agent.database.answers import DATABASE_CHANGED
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
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Lang, QueryLimits
from sql_agent.tasks.spider.folder import SCHEMA, database_variants, default_database, named_database
from sql_agent.tasks.spider.gold import MAX_CHARS, MAX_ROWS, run_gold

_KEPT_RESULTS = 2048  # of gold statements
_KEPT_OPEN = 16
_THREADS = 4


class ExecutionJudge:
    """Gives 1.0 for a statement whose result equals the gold statement's in every variant of the database, else 0.0.

    `path_of` returns the file of a question's database. The statement runs with the larger limits of a comparison, not
    those of the tool, unless the agent already received its whole result.
    """

    name = "execution"

    def __init__(self, settings: SpiderSettings, path_of: Callable[[str | None], Path]) -> None:
        self._settings = settings
        self._path_of = path_of
        limits = QueryLimits(deadline_s=settings.deadline_s, max_rows=MAX_ROWS, max_chars=MAX_CHARS)
        self._databases = DatabasePool(lambda path: open_database(str(path), SCHEMA, limits), keep=_KEPT_OPEN)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="compare")
        self._gold = lru_cache(maxsize=_KEPT_RESULTS)(run_gold)

    @property
    def identity(self) -> str:
        """The rules by which results are compared; verdicts by other rules are not mixed with these."""
        s = self._settings
        return f"execution/1:{s.match}:distinct={s.keep_distinct}:partial={s.partial_credit:g}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Compare results. Raises JudgeError when the gold statement does not run or the database was changed."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._grade, case)

    def _grade(self, case: JudgeCase) -> Verdict:
        gold_sql, sql = case.question.sql or "", statement_in(case.answer)
        if not sql:
            return _verdict(0.0, "there is no statement")
        paths = database_variants(self._path_of(case.question.database))
        compared = [self._compare(path, gold_sql, sql, case if path == paths[0] else None) for path in paths]
        if wrong := [verdict for verdict, _ in compared if verdict.score < 1.0]:
            return min(wrong, key=lambda verdict: verdict.score)
        if self._settings.match == "strict" and not any(has_rows for _, has_rows in compared):
            return _verdict(0.0, "both results are empty, which proves nothing")
        return _verdict(1.0, "the results are equal")

    def _compare(self, path: Path, gold_sql: str, sql: str, case: JudgeCase | None) -> tuple[Verdict, bool]:
        """Return the verdict on one file, and whether the gold statement returns rows there."""
        keep = self._settings.keep_distinct
        try:
            gold = self._gold(path, comparable(gold_sql, keep_distinct=keep), self._settings.deadline_s)
        except sqlite3.Error as error:
            raise JudgeError(f"the gold statement {gold_sql!r} fails in {path}: {error}") from error
        asked = comparable(sql, keep_distinct=keep)
        known = _known_rows(asked, case) if case else None
        found = self._rows(path, asked) if known is None else known
        if isinstance(found, str):
            return _verdict(0.0, found), bool(gold)
        if results_match(gold, found, ordered=is_ordered(gold_sql)):
            return _verdict(1.0, ""), bool(gold)
        reason = f"the gold statement returns {_size(gold)}, this one {_size(found)}"
        return _verdict(self._settings.partial_credit * cell_overlap(gold, found), reason), bool(gold)

    def _rows(self, path: Path, sql: str) -> list[ResultRow] | str:
        """Return the whole result of a statement, or why it has none. Raises JudgeError if the database fails."""
        with self._databases.of(str(path)) as database:
            answer = database.query(sql)
        if answer.error is not None and answer.error.kind == DATABASE_CHANGED:
            raise JudgeError(answer.error.message, hint=answer.error.hint)
        if answer.error is not None:
            return f"{answer.error.kind}: {answer.error.message}"
        return "the result is too large to be compared" if answer.truncated else list(answer.records)


def make_judge(settings: Settings, _words: Mapping[Lang, Words], *, alone: bool = False) -> ExecutionJudge:
    """Return the execution judge, whatever `judge.name` says: only the result shows whether a statement is right."""

    def path_of(name: str | None) -> Path:
        return default_database(settings) if name is None else named_database(settings, name)

    return ExecutionJudge(settings.spider, path_of)


def _known_rows(sql: str, case: JudgeCase) -> list[ResultRow] | None:
    """Return the whole result that the agent already received for `sql`; None if there is none."""
    for call in case.calls:
        if call.sql == sql and call.answer.status == "ok" and not call.answer.truncated:
            return list(call.answer.records)
    return None


def _size(rows: list[ResultRow]) -> str:
    columns = len(rows[0]) if rows else 0
    return f"{len(rows)} rows of {columns} columns" if rows else "no row"


def _verdict(score: float, reason: str) -> Verdict:
    return Verdict(score=score, reason=reason)
