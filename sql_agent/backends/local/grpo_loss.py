"""The GRPO objective as pure functions of tensors."""

from __future__ import annotations

import torch


def clipped_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    tokens: float,
) -> tuple[torch.Tensor, float]:
    """The clipped policy-gradient loss, summed over sampled tokens and divided by `tokens`.

    `new` and `old` are log-probabilities (rows, length), `advantages` (rows,), `mask` 1.0 on sampled tokens; `tokens`
    is the number of sampled tokens of the whole minibatch, so that micro-batches add up to its mean. The ratio is
    kept within [1 - clip_low, 1 + clip_high] (arXiv:2503.14476, eq. 10). Returns the loss and how many tokens were
    clipped.
    """
    ratio = torch.exp((new - old) * mask)
    weight = advantages[:, None]
    free, clipped = ratio * weight, ratio.clamp(1 - clip_low, 1 + clip_high) * weight
    loss = -(torch.minimum(free, clipped) * mask).sum() / tokens
    return loss, float(((clipped < free) * mask).sum())


def kl_penalty(new: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, *, tokens: float) -> torch.Tensor:
    """KL(policy || reference) by the unbiased, non-negative estimator exp(d) - d - 1 (arXiv:2402.03300, eq. 4)."""
    difference = (reference - new) * mask
    return ((torch.exp(difference) - difference - 1) * mask).sum() / tokens
