"""Never pay twice for the same grading."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import diskcache

from sql_agent.reward.judges.base import Judge, JudgeCase, JudgeWrapper, Verdict
from sql_agent.schemas import Usage


class CachedJudge(JudgeWrapper):
    """A judge whose verdicts are kept in `folder`, for other processes and later runs too. Errors are not kept.

    The key is the judge's identity, the question, its reference, the answer and the rows.
    """

    def __init__(self, judge: Judge, folder: Path) -> None:
        super().__init__(judge)
        self._folder = folder
        self._cache: diskcache.Cache | None = None

    async def grade(self, case: JudgeCase) -> Verdict:
        """The kept verdict, its usage one cache hit; else the judge's. Raises JudgeError as the judge does."""
        if self._cache is None:  # in the process that uses it: SQLite connections must not cross a fork
            # JSON and not pickle, so that a file that someone else wrote cannot run code.
            self._cache = diskcache.Cache(str(self._folder), disk=diskcache.JSONDisk)
        key = self._key(case)
        kept = await asyncio.to_thread(self._cache.get, key)
        if kept is not None:
            return Verdict.model_validate_json(kept).model_copy(update={"usage": Usage(cache_hits=1)})
        verdict = await self._judge.grade(case)
        await asyncio.to_thread(self._cache.set, key, verdict.model_dump_json())
        return verdict

    def _key(self, case: JudgeCase) -> str:
        rows = [(c.answer.columns, c.answer.records) for c in case.calls if c.answer.status == "ok"]
        question = case.question
        parts = [self.identity, question.lang, question.question, question.answer, case.answer, rows]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()
