"""Update the policy by GRPO from the rollouts of a step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sql_agent.config.settings import LocalSettings, TrainSettings
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.training.local.grpo_loss import clipped_loss, kl_penalty
from sql_agent.training.policy.forward import token_logprobs
from sql_agent.training.policy.gradients import clip_gradient
from sql_agent.training.policy.model import Policy

if TYPE_CHECKING:
    from sql_agent.rollouts.rollouts import (
        FinishedRollout,  # agent-lightning takes seconds to import; asking needs none of it
    )


@dataclass(frozen=True)
class _Item:
    """Pairs a sequence with the advantage of its rollout."""

    sequence: TokenSequence
    advantage: float


class GrpoTrainer:
    """Updates the weights of a policy; `update` takes the kept rollouts of one step.

    `optimizer` is AdamW over all weights but those of the lowest `local.frozen_share` of the layers and, with these,
    the embedding, which is the output layer too where the model ties them. With `settings.kl_coef` above 0 a frozen
    copy of the policy as it is now is the reference of the KL penalty. `temperature` is that of the rollouts: the
    policy that is improved is the one that sampled them. At 0 nothing differs within a group and nothing is learned, so
    any value will do. `half_updated` is true after an error between two minibatches, when the weights are those of no
    step.
    """

    def __init__(
        self, policy: Policy, settings: TrainSettings, local: LocalSettings, *, bf16: bool, temperature: float
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._bf16 = bf16
        self._temperature = temperature or 1.0
        self._warmup_steps = local.warmup_steps
        self.half_updated = False
        if local.frozen_share:
            layers = policy.model.model.layers
            policy.model.get_input_embeddings().requires_grad_(False)
            layers[: round(local.frozen_share * len(layers))].requires_grad_(False)
        trained = [weights for weights in policy.model.parameters() if weights.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=settings.lr, weight_decay=0.0)
        self._reference: Any = copy.deepcopy(policy.model).requires_grad_(False) if settings.kl_coef > 0 else None

    def update(self, kept: Sequence[FinishedRollout], advantages: dict[str, float], *, step: int) -> dict[str, float]:
        """Do one optimizer step for each minibatch of training step `step`, and return the `update/...` metrics.

        `advantages` are by rollout id; rollouts whose advantage is 0 have no gradient and are left out. They still
        count in the number of tokens that the loss is divided by, so that a step with few informative groups changes
        the policy less, not more. Raises TrainingError when a gradient is not finite.
        """
        useful = [r for r in kept if abs(advantages[r.rollout_id]) > 1e-6]
        metrics = {
            "update/rollouts": float(len(useful)),
            "update/tokens": float(sum(s.sampled for r in useful for s in r.sequences)),
        }
        if not useful:
            return metrics | {"update/loss": 0.0, "update/grad_norm": 0.0, "update/clip_fraction": 0.0}
        for group in self.optimizer.param_groups:
            group["lr"] = self._settings.lr * min(1.0, step / (self._warmup_steps + 1))
        self._policy.model.train()
        try:
            return metrics | self._minibatches(useful, kept, advantages, step)
        finally:
            self._policy.model.eval()

    def _minibatches(
        self,
        useful: Sequence[FinishedRollout],
        kept: Sequence[FinishedRollout],
        advantages: dict[str, float],
        step: int,
    ) -> dict[str, float]:
        parts = _split_by_group(useful, self._settings.minibatches)
        old = None
        if len(parts) > 1:  # because the later minibatches are off-policy after the first optimizer step
            with torch.no_grad():
                old = {r.rollout_id: self._logprobs(r.sequences) for r in useful}
        share = sum(s.sampled for r in kept for s in r.sequences) / len(parts)
        results = []
        for part in parts:
            items = [_Item(s, advantages[r.rollout_id]) for r in part for s in r.sequences]
            result = self._add_gradient(items, share, part, old)
            result["update/grad_norm"] = clip_gradient(
                self._policy.model.parameters(),
                self._settings.max_grad_norm,
                where=f"step {step}",
                hint="--resume goes on after the last checkpoint; if it fails again, lower train.lr in a new run",
            )
            self.optimizer.step()
            results.append(result)
            self.half_updated = len(results) < len(parts)
        self.optimizer.zero_grad(set_to_none=True)
        return {name: sum(r[name] for r in results) / len(results) for name in results[0]}

    def _add_gradient(
        self,
        items: list[_Item],
        tokens: float,
        part: Sequence[FinishedRollout],
        old: dict[str, list[torch.Tensor]] | None,
    ) -> dict[str, float]:
        """Compute the gradient of the loss over `items`, in micro-batches of similar length, and return its metrics."""
        recorded = [row for r in part for row in old[r.rollout_id]] if old else [None] * len(items)
        paired = sorted(zip(items, recorded, strict=True), key=lambda pair: len(pair[0].sequence))
        size = self._settings.micro_batch
        total_loss = clipped = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for start in range(0, len(paired), size):
            loss, count = self._loss(paired[start : start + size], tokens)
            loss.backward()
            total_loss += loss.item()
            clipped += count
        return {
            "update/loss": total_loss,
            "update/clip_fraction": clipped / max(1, sum(i.sequence.sampled for i in items)),
        }

    def _loss(self, batch: Sequence[tuple[_Item, torch.Tensor | None]], tokens: float) -> tuple[torch.Tensor, float]:
        sequences = [item.sequence for item, _ in batch]
        new, mask = self._forward(self._policy.model, sequences)
        old = new.detach().clone()
        for row, (_, recorded) in enumerate(batch):
            if recorded is not None:
                old[row, : len(recorded)] = recorded
        settings = self._settings
        loss, clipped = clipped_loss(
            new,
            old,
            torch.tensor([item.advantage for item, _ in batch]),
            mask,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            tokens=tokens,
        )
        if self._reference is not None:
            with torch.no_grad():
                reference, _ = self._forward(self._reference, sequences)
            loss = loss + settings.kl_coef * kl_penalty(new, reference, mask, tokens=tokens)
        return loss, clipped

    def _logprobs(self, sequences: Sequence[TokenSequence]) -> list[torch.Tensor]:
        values, _ = self._forward(self._policy.model, sequences)
        return [row[: len(s.response_ids)] for row, s in zip(values, sequences, strict=True)]

    def _forward(self, model: Any, sequences: Sequence[TokenSequence]) -> tuple[torch.Tensor, torch.Tensor]:
        return token_logprobs(model, sequences, bf16=self._bf16, temperature=self._temperature)


def _split_by_group(rollouts: Sequence[FinishedRollout], parts: int) -> list[list[FinishedRollout]]:
    """Split `rollouts` into at most `parts` lists of about equal size; a group is never split."""
    groups: dict[str, list[FinishedRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    members = list(groups.values())
    count = min(parts, len(members))
    return [[r for group in members[i::count] for r in group] for i in range(count)]
