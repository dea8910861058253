"""Detect reward hacking in the metrics of a run: the reward rises, but the answers do not improve.

In a published run with a model as the judge, the score rose to 0.99 while tool calls per task fell from 0.91 to 0.13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

_STEPS = 5  # steps to average at the start and at the end of a run
_HALF, _DOUBLE = 0.5, 2.0
_FURTHER = 0.2  # allowed growth of a share or a score

Metrics = Mapping[str, object]


def alarms(steps: Sequence[Metrics], validations: Sequence[Metrics]) -> dict[str, str]:
    """Return {symptom: sentence} for the symptoms of reward hacking; empty for fewer than ten steps.

    The means of the first and last five training steps are compared, and the first and the last validation.
    """
    if len(steps) < 2 * _STEPS:
        return {}
    found = {}
    queries, length = _ends(steps, "agent/tool_calls"), _ends(steps, "agent/completion_tokens")
    refused, judge = _ends(steps, "refused_answerable"), _ends(steps, "reward/judge")
    if queries and queries[1] < _HALF * queries[0]:
        found["queries"] = f"queries a rollout fell from {queries[0]:.2f} to {queries[1]:.2f}"
    if length and not _HALF <= length[1] / max(length[0], 1e-9) <= _DOUBLE:
        found["length"] = f"the tokens of a rollout went from {length[0]:.0f} to {length[1]:.0f}"
    if refused and refused[1] > refused[0] + _FURTHER:
        found["refusals"] = f"refusals of answerable questions rose from {refused[0]:.0%} to {refused[1]:.0%}"
    correct = [share for line in validations if (share := _correct(line)) is not None]
    if judge and len(correct) > 1 and judge[1] - correct[-1] > judge[0] - correct[0] + _FURTHER:
        found["gap"] = (
            f"the judge's score rose from {judge[0]:.2f} to {judge[1]:.2f}, the correct answers of the validation went "
            f"from {correct[0]:.0%} to {correct[-1]:.0%}"
        )
    return found


def _ends(steps: Sequence[Metrics], name: str) -> tuple[float, float] | None:
    """Return the means of the metric `name` over the first and the last five steps; None if one end lacks it."""
    ends = [
        [value for line in part if isinstance(value := line.get(name), int | float)]
        for part in (steps[:_STEPS], steps[-_STEPS:])
    ]
    return (fmean(ends[0]), fmean(ends[1])) if all(ends) else None


def _correct(line: Metrics) -> float | None:
    """Return the share of correct answers in a validation, averaged over the validation sets."""
    shares = [
        v for k, v in line.items() if k.startswith("val/") and k.endswith("/correct") and isinstance(v, int | float)
    ]
    return fmean(shares) if shares else None
