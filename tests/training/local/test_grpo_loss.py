"""What is better than its group is made likelier, within the clip, token by token."""

from __future__ import annotations

import pytest
import torch

from sql_agent.training.local.grpo_update import clipped_loss, kl_penalty

CLIP = {"clip_low": 0.2, "clip_high": 0.3}


def gradient(ratio: float, advantage: float, mask: float = 1.0) -> float:
    new = torch.tensor([[float(torch.log(torch.tensor(ratio)))]], requires_grad=True)
    loss, _ = clipped_loss(new, torch.zeros(1, 1), torch.tensor([advantage]), torch.tensor([[mask]]), tokens=1, **CLIP)
    loss.backward()
    assert new.grad is not None
    return float(new.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [
        (1.0, 1.0, True),
        (1.29, 1.0, True),
        (1.31, 1.0, False),
        (0.5, 1.0, True),
        (0.81, -1.0, True),
        (0.79, -1.0, False),
    ],
)
def test_the_clip_stops_a_token_only_when_it_has_gone_far_enough(ratio: float, advantage: float, moves: bool) -> None:
    slope = gradient(ratio, advantage)
    assert (slope != 0.0) == moves
    assert slope * advantage <= 0.0, "a good token must become likelier, a bad one less so"


def test_what_the_policy_did_not_sample_does_not_move() -> None:
    assert gradient(1.0, 1.0, mask=0.0) == 0.0


def test_micro_batches_add_up_to_the_whole() -> None:
    torch.manual_seed(0)
    new, old, mask = torch.randn(4, 5) * 0.1, torch.randn(4, 5) * 0.1, (torch.rand(4, 5) > 0.3).float()
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])
    whole, _ = clipped_loss(new, old, advantages, mask, tokens=float(mask.sum()), **CLIP)
    halves = [
        clipped_loss(
            new[i : i + 2], old[i : i + 2], advantages[i : i + 2], mask[i : i + 2], tokens=float(mask.sum()), **CLIP
        )[0]
        for i in (0, 2)
    ]
    assert float(whole) == pytest.approx(float(sum(halves)), abs=1e-6)


def test_the_kl_penalty_is_zero_at_the_reference_and_positive_elsewhere() -> None:
    reference, mask = torch.randn(2, 3), torch.ones(2, 3)
    assert float(kl_penalty(reference, reference, mask, tokens=6)) == pytest.approx(0.0)
    assert float(kl_penalty(reference + 0.3, reference, mask, tokens=6)) > 0
    assert float(kl_penalty(reference - 0.3, reference, mask, tokens=6)) > 0
