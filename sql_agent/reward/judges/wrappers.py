"""Wrap judges: average several judges, or cache verdicts so that equal gradings are paid once."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import diskcache

from sql_agent.errors import JudgeError
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

    Equal cases that are graded at the same time, such as equal answers in a group, share one grading: its usage counts
    once, and its error is raised for all of them. The key is the judge's identity and all that a judge may see of the
    case: question, reference, type, evidence, answer, statements and rows.
    """

    def __init__(self, judge: Judge, folder: Path) -> None:
        super().__init__(judge)
        make_writable(folder, "judge.cache_dir")
        self._folder = folder
        self._cache: diskcache.Cache | None = None
        # Keyed by event loop too, because a script may call asyncio.run twice.
        self._under_way: dict[tuple[asyncio.AbstractEventLoop, str], _Grading] = {}

    async def grade(self, case: JudgeCase) -> Verdict:
        """Return the cached verdict, with one cache hit as usage, or the judge's verdict. Raises JudgeError."""
        key = asyncio.get_running_loop(), self._key(case)
        grading = self._under_way.get(key)
        if grading is None:
            grading = self._under_way[key] = _Grading(asyncio.create_task(self._kept_or_graded(key[1], case)))
            grading.task.add_done_callback(lambda _: self._under_way.pop(key))
        return await grading.result()

    async def _kept_or_graded(self, key: str, case: JudgeCase) -> Verdict:
        if self._cache is None:  # opened on first use: SQLite connections must not cross a fork
            # JSON and not pickle, because unpickling another user's file could run code.
            self._cache = diskcache.Cache(str(self._folder), disk=diskcache.JSONDisk)
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


class _Grading:
    """One grading that several callers await. Its usage is charged to the first caller that gets the outcome."""

    def __init__(self, task: asyncio.Task[Verdict]) -> None:
        self.task = task
        self._usage_given = False

    async def result(self) -> Verdict:
        try:
            # Shielded, so that a cancelled caller does not cancel the grading of the others.
            verdict = await asyncio.shield(self.task)
        except JudgeError as error:
            # A copy for each caller, because raising an exception extends its traceback.
            own = copy.copy(error)
            own.usage = error.usage if self._is_first() else Usage()
            raise own from None
        return verdict if self._is_first() else verdict.model_copy(update={"usage": Usage(cache_hits=1)})

    def _is_first(self) -> bool:
        given, self._usage_given = self._usage_given, True
        return not given
