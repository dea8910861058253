"""When the judge fails so often that a run must not go on."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.config.settings import Settings
from sql_agent.errors import TrainingError
from sql_agent.rl.metrics import drop_reasons
from sql_agent.rl.rollouts import FinishedRollout


def check_judge_failures(
    settings: Settings, rollouts: Sequence[FinishedRollout], *, expected: int, where: str
) -> TrainingError | None:
    """The error to stop with when the judge failed on more than its share of `expected` rollouts, else None.

    One grading may always fail, however small the step; with the judge `ranking` that is one group.
    """
    failed = sum((r.dropped or "").startswith("judge:") for r in rollouts)
    one = settings.train.group_size if settings.judge.name == "ranking" else 1
    limit = settings.judge.max_failed_share
    if failed <= max(one, limit * expected):
        return None
    return TrainingError(
        f"{where}: the judge failed on {failed} of {expected} rollouts: {drop_reasons(rollouts)}",
        hint=f"mend the judge and --resume; the accepted share is judge.max_failed_share={limit:g}",
    )
