"""Average several judges, because training finds the weakness of a single judge first."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.schemas import Usage


class PanelJudge:
    """All members grade every case; the score is the mean of theirs.

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
