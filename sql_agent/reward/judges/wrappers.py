"""Wrap judges: average several judges, or cache verdicts so that equal gradings are paid once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import diskcache

from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.schemas import Usage
from sql_agent.system.files import make_writable


class JudgeWrapper:
    """The base class of judges that wrap another judge and have its name and identity."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    def name(self) -> str:
        return self._judge.name

    @property
    def identity(self) -> str:
        return self._judge.identity


class PanelJudge:
    """A panel of judges: every member grades every case, and the score is the mean of their scores.

    Training exploits the weaknesses of a single judge first. The criteria are each member's score under its label, the
    member's criteria as "label.criterion", and "disagreement", the highest score minus the lowest.
    """

    def __init__(self, members: Sequence[tuple[str, Judge]]) -> None:
        self._members = members

    @property
    def name(self) -> str:
        return "+".join(label for label, _ in self._members)

    @property
    def identity(self) -> str:
        return "panel/1:mean:" + "+".join(judge.identity for _, judge in self._members)

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises the JudgeError of a failed member: a mean without it would be another judge's."""
        verdicts = await asyncio.gather(*(judge.grade(case) for _, judge in self._members))
        scores = [verdict.score for verdict in verdicts]
        criteria = {"disagreement": max(scores) - min(scores)}
        for (label, _), verdict in zip(self._members, verdicts, strict=True):
            criteria[label] = verdict.score
            criteria |= {f"{label}.{name}": value for name, value in verdict.criteria.items()}
        return Verdict(
            score=statistics.fmean(scores),
            criteria=criteria,
            reason="; ".join(f"{label}: {v.reason}" for (label, _), v in zip(self._members, verdicts, strict=True)),
            usage=sum((verdict.usage for verdict in verdicts), Usage()),
        )


class CachedJudge(JudgeWrapper):
    """A judge with a cache of verdicts in `folder`, shared with other processes and later runs. Errors are not cached.

    Of equal cases that are graded at the same time, such as equal answers in a group, one is graded, and the others get
    its verdict from the cache. The key is the judge's identity and all that a judge may see of the case: question,
    reference, type, evidence, answer, statements and rows.
    """

    def __init__(self, judge: Judge, folder: Path) -> None:
        super().__init__(judge)
        make_writable(folder, "judge.cache_dir")
        self._folder = folder
        self._cache: diskcache.Cache | None = None
        # A lock belongs to an event loop, and a script may call asyncio.run twice.
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def grade(self, case: JudgeCase) -> Verdict:
        """Return the cached verdict, with one cache hit as usage, or the judge's verdict. Raises JudgeError."""
        if self._cache is None:  # opened on first use: SQLite connections must not cross a fork
            # JSON and not pickle, because unpickling another user's file could run code.
            self._cache = diskcache.Cache(str(self._folder), disk=diskcache.JSONDisk)
        key = self._key(case)
        async with self._locks.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock()):
            kept = await asyncio.to_thread(self._cache.get, key)
            if kept is not None:
                return Verdict.model_validate_json(kept).model_copy(update={"usage": Usage(cache_hits=1)})
            verdict = await self._judge.grade(case)
            await asyncio.to_thread(self._cache.set, key, verdict.model_dump_json())
            return verdict

    def _key(self, case: JudgeCase) -> str:
        question = case.question.model_dump(include={"lang", "question", "answer", "enough", "task_type", "evidence"})
        queries = [(c.sql, c.answer.columns, c.answer.records) for c in case.calls if c.answer.status == "ok"]
        parts = [self.identity, question, case.answer, queries]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()
