"""Patch verl in each of its workers.

A micro-batch's shared prompt is computed only once, logits are computed only for tokens that the policy wrote, and LoRA
adapters stay in fp32.

verl imports this module before it loads the model, because `actor_rollout_ref.model.external_lib` names the module.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from verl.models.transformers import dense_common
from verl.utils.experimental.torch_functional import FusedLinearForPPO
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead

from sql_agent.training.policy.attention import NAME
from sql_agent.training.policy.forward import packed_states

_plain_forward = dense_common.forward_with_torch_backend
_build_lora_module = FSDPEngine._build_lora_module
_prepare_model_inputs = FSDPEngineWithLMHead.prepare_model_inputs


def forward(
    self: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_ids: Any = None,
    *args: Any,
    temperature: float = 1.0,
    shift_labels: Any = None,
    is_trained: torch.Tensor | None = None,
    **options: Any,
) -> Any:
    """Compute the log-probabilities and entropies (1, tokens) of a packed row.

    `input_ids`, `position_ids` and `shift_labels` (the next tokens) have the shape (1, tokens); a sequence starts
    wherever `position_ids` is 0. Only where `is_trained` (tokens,) is True, the results are meant to be read. For other
    shapes, and unless the model's attention is `torch_varlen`, verl's own forward pass is used, for all tokens.
    """
    given = (position_ids, shift_labels)
    if self.config._attn_implementation != NAME or any(each is None or each.dim() != 2 for each in given):
        return _plain_forward(
            self, input_ids, attention_mask, position_ids, *args,
            temperature=temperature, shift_labels=shift_labels, **options,
        )  # fmt: skip
    row = input_ids.flatten().tolist()
    starts = (position_ids.flatten() == 0).nonzero().flatten().tolist()
    sequences = [row[start:end] for start, end in pairwise((*starts, len(row)))]
    states, packing = packed_states(self.model, sequences)
    kept, places = packing.kept.to(states.device), packing.places.to(states.device)
    head = FusedLinearForPPO(impl_backend=getattr(self, "_verl_fused_kernels_backend", "torch"))
    labels = shift_labels.flatten()[kept]
    if is_trained is None:
        logprobs, entropies = head(states, self.lm_head.weight, labels, temperature)
    else:
        trained = places[is_trained.nonzero().flatten()].unique()
        results = head(states[trained], self.lm_head.weight, labels[trained], temperature)
        logprobs, entropies = (each.new_zeros(len(kept)).index_put((trained,), each) for each in results)
    return dense_common.CausalLMOutputForPPO(log_probs=logprobs[places][None], entropy=entropies[places][None])


def prepare_model_inputs(self: Any, micro_batch: Any) -> Any:
    """Add `is_trained` to verl's inputs: for each token, whether the policy wrote the next token."""
    inputs, for_outputs = _prepare_model_inputs(self, micro_batch)
    mask = micro_batch.get("loss_mask")  # of the responses
    if "shift_labels" in inputs and mask is not None and mask.is_nested:
        parts = []
        for length, written in zip(micro_batch["input_ids"].offsets().diff().tolist(), mask.unbind(), strict=True):
            parts += [written.new_zeros(length - len(written) - 1), written, written.new_zeros(1)]
        inputs["is_trained"] = torch.cat(parts).bool()
    return inputs, for_outputs


def build_lora_module(self: Any, module: Any) -> Any:
    """Add adapters as verl does, but in fp32, because AdamW's small steps vanish in bf16.

    verl gives adapters the dtype of the other weights, which is bf16 here. FSDP1 shards each adapter separately, so
    its dtype may differ from that of the other weights.
    """
    module = _build_lora_module(self, module)
    if self.engine_config.strategy == "fsdp":
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    return module


dense_common.forward_with_torch_backend = forward
FSDPEngine._build_lora_module = build_lora_module
FSDPEngineWithLMHead.prepare_model_inputs = prepare_model_inputs
