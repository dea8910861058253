"""Compute the loss of GRPO on the tokens of a micro-batch, and its KL penalty."""

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
    """Return the clipped policy-gradient loss and the number of clipped tokens.

    The loss is the sum over the sampled tokens of a micro-batch, divided by `tokens`. All micro-batches of a minibatch
    have the same `tokens`, so that their losses add up to the loss of the minibatch. `new` and `old` are natural
    log-probabilities of shape (rows, length), `advantages` has shape (rows,), and `mask` (rows, length) is 1.0 on
    sampled tokens. The ratio exp(new - old) is clipped to [1 - clip_low, 1 + clip_high] (Yu et al. 2025,
    arXiv:2503.14476, eq. 10).
    """
    ratio = torch.exp((new - old) * mask)
    weight = advantages[:, None]
    free, clipped = ratio * weight, ratio.clamp(1 - clip_low, 1 + clip_high) * weight
    loss = -(torch.minimum(free, clipped) * mask).sum() / tokens
    return loss, float(((clipped < free) * mask).sum())


def kl_penalty(new: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, *, tokens: float) -> torch.Tensor:
    """Return an estimate of KL(policy || reference) in nats, summed over the sampled tokens and divided by `tokens`.

    The estimate exp(d) - d - 1 of each token, with d = reference - new, is unbiased and never negative (Shao et al.
    2024, arXiv:2402.03300, eq. 4). `new` and `reference` are natural log-probabilities of shape (rows, length). `mask`
    (rows, length) is 1.0 on sampled tokens.
    """
    difference = (reference - new) * mask
    return ((torch.exp(difference) - difference - 1) * mask).sum() / tokens
