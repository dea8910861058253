"""Wrap judges: average several, or keep verdicts, so that equal gradings are paid once."""

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
    """Base of judges that wrap another one and keep its name and identity."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    def name(self) -> str:
        return self._judge.name

    @property
    def identity(self) -> str:
        return self._judge.identity


class PanelJudge:
    """All members grade every case; the score is the mean of theirs: training finds the weakness of one judge first.

    The criteria are each member's score under its label, its own criteria as "label.criterion", and "disagreement",
    the highest score minus the lowest.
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
        """Grade one case; raises the JudgeError of a member that failed, since a panel without it is another judge."""
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
    """A judge whose verdicts are kept in `folder`, also for other processes and later runs. Errors are not kept.

    Equal gradings at the same time, for example of equal answers in a group, are one grading: its usage counts once,
    its error fails them all. The key is the judge's identity and all that a judge may see of the case: question,
    reference, type, evidence, answer, statements and rows.
    """

    def __init__(self, judge: Judge, folder: Path) -> None:
        super().__init__(judge)
        make_writable(folder, "judge.cache_dir")
        self._folder = folder
        self._cache: diskcache.Cache | None = None
        # By event loop too, since a script may call asyncio.run twice.
        self._under_way: dict[tuple[asyncio.AbstractEventLoop, str], _Grading] = {}

    async def grade(self, case: JudgeCase) -> Verdict:
        """Return the kept verdict, its usage one cache hit; else the judge's. Raises JudgeError as the judge does."""
        key = asyncio.get_running_loop(), self._key(case)
        grading = self._under_way.get(key)
        if grading is None:
            grading = self._under_way[key] = _Grading(asyncio.create_task(self._kept_or_graded(key[1], case)))
            grading.task.add_done_callback(lambda _: self._under_way.pop(key))
        return await grading.result()

    async def _kept_or_graded(self, key: str, case: JudgeCase) -> Verdict:
        if self._cache is None:  # in the process that uses it: SQLite connections must not cross a fork
            # JSON and not pickle, so that a file that someone else wrote cannot run code.
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
    """One grading that several callers await. The usage goes to the first one that gets the outcome."""

    def __init__(self, task: asyncio.Task[Verdict]) -> None:
        self.task = task
        self._usage_given = False

    async def result(self) -> Verdict:
        try:
            # Shielded, so that a cancelled caller does not cancel the grading of the others.
            verdict = await asyncio.shield(self.task)
        except JudgeError as error:
            # A copy for each, because raising adds to an exception's traceback.
            own = copy.copy(error)
            own.usage = error.usage if self._is_first() else Usage()
            raise own from None
        return verdict if self._is_first() else verdict.model_copy(update={"usage": Usage(cache_hits=1)})

    def _is_first(self) -> bool:
        given, self._usage_given = self._usage_given, True
        return not given
