"""Update the policy's weights with GRPO on the kept rollouts of a training step, for the backend `local`.

1. Leave out rollouts whose advantage is 0, because they have no gradient.
2. Split the other rollouts into minibatches, one for each optimizer step.
3. For each minibatch, sum the gradient of the clipped loss over micro-batches, clip it, and do an optimizer step.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sql_agent.config.settings import Settings
from sql_agent.rollouts.trajectory import FinishedRollout, TokenSequence
from sql_agent.training.policy.forward import SharedPrefix, clip_gradient, token_logprobs
from sql_agent.training.policy.model import Policy

_WARMUP_STEPS = 2  # needed, because AdamW's first step moves every weight by the full learning rate
_FROZEN_SHARE = 0.5  # local.cheap_update freezes this share of the layers, from the lowest layer up


@dataclass(frozen=True)
class _Item:
    """A token sequence and the advantage of its rollout.

    `old` (response tokens,) has the log-probabilities of the response before the step's first minibatch. It is None if
    the step has only one minibatch, which is on-policy.
    """

    sequence: TokenSequence
    advantage: float
    old: Tensor | None


class GrpoUpdate:
    """Updates the weights of a policy with GRPO; call the object with the kept rollouts of each step.

    With `local.cheap_update`, the lower half of the layers and the embedding (also the output layer, if it is tied) are
    frozen, and the learning rate rises over the first steps. With `train.kl_coef` above 0, `reference` is a frozen copy
    of the policy at construction, for the KL penalty; otherwise it is None. `half_updated` is true if an error ended
    an update between two minibatches.
    """

    def __init__(self, policy: Policy, settings: Settings, *, bf16: bool) -> None:
        self._policy = policy
        self._settings = settings.train
        self._bf16 = bf16
        # Log-probabilities are computed at the temperature of sampling. At temperature 0 all rollouts of a group are
        # equal and their advantages are 0, so any temperature will do.
        self._temperature = settings.agent.temperature or 1.0
        self._warmup_steps = _WARMUP_STEPS if settings.local.cheap_update else 0
        self.half_updated = False
        if settings.local.cheap_update:
            layers = policy.model.model.layers
            policy.model.get_input_embeddings().requires_grad_(False)
            layers[: round(_FROZEN_SHARE * len(layers))].requires_grad_(False)
        trained = [weights for weights in policy.model.parameters() if weights.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=settings.train.lr, weight_decay=0.0)
        self.reference: Any = copy.deepcopy(policy.model).requires_grad_(False) if settings.train.kl_coef > 0 else None

    def __call__(
        self, kept: Sequence[FinishedRollout], advantages: Mapping[str, float], *, step: int
    ) -> dict[str, float]:
        """Do the optimizer steps of training step `step`, and return metrics; the keys of `advantages` are rollout ids.

        The loss is divided by the sampled tokens of all `kept` rollouts, including those whose advantage is 0, so that
        a step with few informative groups changes the policy less. Raises TrainingError when a gradient is not finite.
        """
        useful = [r for r in kept if abs(advantages[r.rollout_id]) > 1e-6]
        figures = {"rollouts": float(len(useful)), "tokens": float(sum(s.sampled for r in useful for s in r.sequences))}
        if not useful:
            return figures | {"loss": 0.0, "grad_norm": 0.0, "clip_fraction": 0.0}
        for group in self.optimizer.param_groups:
            group["lr"] = self._settings.lr * min(1.0, step / (self._warmup_steps + 1))
        self._policy.model.train()
        try:
            minibatches = self._minibatches(useful, advantages)
            tokens = sum(s.sampled for r in kept for s in r.sequences) / len(minibatches)
            results = []
            for items in minibatches:
                results.append(self._optimizer_step(items, tokens, where=f"step {step}"))
                self.half_updated = len(results) < len(minibatches)
        finally:
            self._policy.model.eval()
        self.optimizer.zero_grad(set_to_none=True)
        return figures | {name: sum(result[name] for result in results) / len(results) for name in results[0]}

    def _minibatches(self, useful: Sequence[FinishedRollout], advantages: Mapping[str, float]) -> list[list[_Item]]:
        """Split the sequences of `useful` rollouts into at most `train.minibatches` lists; a group is never split."""
        parts = _split_by_group(useful, self._settings.minibatches)
        # Old log-probabilities are needed because later minibatches are off-policy after the first optimizer step.
        return [
            [
                _Item(s, advantages[r.rollout_id], self._old_logprobs(s) if len(parts) > 1 else None)
                for r in part
                for s in r.sequences
            ]
            for part in parts
        ]

    def _optimizer_step(self, items: Sequence[_Item], tokens: float, *, where: str) -> dict[str, float]:
        """Do one optimizer step on the minibatch `items`; return its loss, clip fraction and gradient norm.

        `clipped_loss` explains `tokens`.
        """
        ordered = sorted(items, key=lambda item: len(item.sequence))  # so that micro-batches have little padding
        size = self._settings.micro_batch
        total_loss = clipped = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        prefix = self._prefix(self._policy.model, items)
        with torch.no_grad():
            of_reference = None if self.reference is None else self._prefix(self.reference, items)
        for start in range(0, len(ordered), size):
            loss, count = self._loss(ordered[start : start + size], tokens, prefix, of_reference)
            loss.backward()
            total_loss += loss.item()
            clipped += count
        if prefix:
            prefix.backward()
        norm = clip_gradient(
            self._policy.model.parameters(),
            where=where,
            hint="continue after the last checkpoint with --resume; if that fails too, lower train.lr in a new run",
        )
        self.optimizer.step()
        return {
            "loss": total_loss,
            "clip_fraction": clipped / max(1, sum(item.sequence.sampled for item in items)),
            "grad_norm": norm,
        }

    def _prefix(self, model: Any, items: Sequence[_Item]) -> SharedPrefix | None:
        return SharedPrefix.of(model, [item.sequence for item in items], bf16=self._bf16)

    def _loss(
        self, batch: Sequence[_Item], tokens: float, prefix: SharedPrefix | None, of_reference: SharedPrefix | None
    ) -> tuple[Tensor, float]:
        """Return the loss of a micro-batch, KL penalty included, and the number of its clipped tokens.

        `prefix` and `of_reference` are the shared prefix as computed by the policy and by the reference.
        """
        sequences = [item.sequence for item in batch]
        new, mask = self._forward(self._policy.model, sequences, prefix)
        old = new.detach().clone()
        for row, item in enumerate(batch):
            if item.old is not None:
                old[row, : len(item.old)] = item.old
        advantages = torch.tensor([item.advantage for item in batch])
        settings = self._settings
        loss, clipped = clipped_loss(
            new, old, advantages, mask, clip_low=settings.clip_low, clip_high=settings.clip_high, tokens=tokens
        )
        if self.reference is not None:
            with torch.no_grad():
                reference, _ = self._forward(self.reference, sequences, of_reference)
            loss = loss + settings.kl_coef * kl_penalty(new, reference, mask, tokens=tokens)
        return loss, clipped

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _old_logprobs(self, sequence: TokenSequence) -> Tensor:
        return self._forward(self._policy.model, [sequence])[0][0]

    def _forward(
        self, model: Any, sequences: Sequence[TokenSequence], prefix: SharedPrefix | None = None
    ) -> tuple[Tensor, Tensor]:
        return token_logprobs(model, sequences, bf16=self._bf16, temperature=self._temperature, prefix=prefix)


def _split_by_group(rollouts: Sequence[FinishedRollout], parts: int) -> list[list[FinishedRollout]]:
    """Split `rollouts` into at most `parts` lists with about the same number of groups; a group is never split."""
    groups: dict[str, list[FinishedRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    members = list(groups.values())
    count = min(parts, len(members))
    return [[r for group in members[i::count] for r in group] for i in range(count)]


def clipped_loss(
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float, tokens: float
) -> tuple[Tensor, float]:
    """Return the clipped policy-gradient loss of a micro-batch and the number of its clipped tokens.

    The loss is summed over the sampled tokens and divided by `tokens`, which is the same for all micro-batches of a
    minibatch, so that the micro-batches' losses add up. `new` and `old` are natural log-probabilities of shape (rows,
    length), `advantages` has shape (rows,), and `mask` (rows, length) is 1.0 on sampled tokens. The ratio
    exp(new - old) is clipped to [1 - clip_low, 1 + clip_high] (Yu et al. 2025, arXiv:2503.14476, eq. 10).
    """
    ratio = torch.exp((new - old) * mask)
    weight = advantages[:, None]
    free, clipped = ratio * weight, ratio.clamp(1 - clip_low, 1 + clip_high) * weight
    loss = -(torch.minimum(free, clipped) * mask).sum() / tokens
    return loss, float(((clipped < free) * mask).sum())


def kl_penalty(new: Tensor, reference: Tensor, mask: Tensor, *, tokens: float) -> Tensor:
    """Return an estimate of KL(policy || reference) in nats, summed over the sampled tokens and divided by `tokens`.

    The estimate exp(d) - d - 1 of each token, with d = reference - new, is unbiased and never negative (Shao et al.
    2024, arXiv:2402.03300, eq. 4). `new` and `reference` are natural log-probabilities of shape (rows, length). `mask`
    (rows, length) is 1.0 on sampled tokens.
    """
    difference = (reference - new) * mask
    return ((torch.exp(difference) - difference - 1) * mask).sum() / tokens
