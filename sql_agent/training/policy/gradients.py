"""Clip the gradient before an optimizer step, and refuse one that is not finite."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from sql_agent.errors import TrainingError


def clip_gradient(parameters: Iterable[torch.Tensor], max_norm: float, *, where: str, hint: str) -> float:
    """Scale the gradient of `parameters` down to the L2 norm `max_norm`, and return the norm that it had.

    Raises TrainingError, which says `where` and ends with `hint`, when the gradient is not finite, because the
    optimizer step would make all weights NaN.
    """
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    if not norm.isfinite():
        raise TrainingError(f"the gradient of {where} is not finite", hint=hint)
    return float(norm)
