"""Patch verl in each of its workers.

A micro-batch's shared prompt is computed and counted only once, logits are computed only for tokens that the policy
wrote, and LoRA adapters stay in fp32.

verl imports this module before it loads the model, because `actor_rollout_ref.model.external_lib` names the module.
"""

from __future__ import annotations

import math
from itertools import count, pairwise
from typing import Any

import torch
from verl.models.transformers import dense_common
from verl.utils.device import get_device_name
from verl.utils.experimental.torch_functional import FusedLinearForPPO
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions
from verl.utils.tensordict_utils import get_non_tensor_data, index_select_tensor_dict
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead

from sql_agent.training.policy.attention import MIN_SHARED, NAME
from sql_agent.training.policy.forward import common_prefix, packed_states

_COPIED = 1 / 16  # `torch_varlen` copies the prefix's keys and values for each sequence: 6 % of the bytes of its tokens

_plain_forward = dense_common.forward_with_torch_backend
_build_lora_module = FSDPEngine._build_lora_module
_forward_backward_batch = FSDPEngine.forward_backward_batch
_prepare_model_inputs = FSDPEngineWithLMHead.prepare_model_inputs
_prepare_micro_batches = transformer_impl.prepare_micro_batches


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


def forward_backward_batch(self: Any, data: Any, *args: Any, **options: Any) -> Any:
    """Do what verl does, with micro-batches of `prepare_micro_batches` if the model's attention is `torch_varlen`."""
    packs = self.module.config._attn_implementation == NAME
    transformer_impl.prepare_micro_batches = prepare_micro_batches if packs else _prepare_micro_batches
    return _forward_backward_batch(self, data, *args, **options)


def prepare_micro_batches(data: Any, dp_group: Any = None, **options: Any) -> Any:
    """Split `data` into micro-batches; return these, and for each one the indices of its sequences in `data`.

    verl limits the sum of the sequences' lengths. Here the limit is for the tokens of the packed row, which has the
    prefix that all sequences share once, and a copy of its keys and values for each sequence. All ranks of `dp_group`,
    which have the same number of sequences, get the same number of micro-batches. Data that is not packed, or that verl
    splits in another way, is left to verl.
    """
    rows, usual = data["input_ids"], {"use_dynamic_bsz": True, "sp_size": 1, "force_group_size": 1}
    if not rows.is_nested or any(get_non_tensor_data(data, key, value) != value for key, value in usual.items()):
        return _prepare_micro_batches(data, dp_group=dp_group, **options)
    sequences = [tuple(row.tolist()) for row in rows.unbind()]
    common = common_prefix(sequences) - 1  # `pack` shares a token only if the next token is equal, too
    shared = common if common >= MIN_SHARED else 0
    own = [math.ceil(len(sequence) - shared + _COPIED * shared) for sequence in sequences]
    limit = max(data["max_token_len_per_gpu"] - shared, *own)
    for number in count(_agreed(-(-sum(own) // limit), dp_group)):
        parts = get_seqlen_balanced_partitions(own, number, equal_size=False)
        if not _agreed(any(sum(own[each] for each in part) > limit for part in parts), dp_group):
            break
    parts.sort(key=lambda part: -sum(own[each] for each in part))
    return [index_select_tensor_dict(data, part) for part in parts], parts


def _agreed(number: int, dp_group: Any) -> int:
    """Return the largest `number` of all ranks."""
    found = torch.tensor(int(number), device=get_device_name())
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX, group=dp_group)
    return int(found)


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
FSDPEngine.forward_backward_batch = forward_backward_batch
FSDPEngineWithLMHead.prepare_model_inputs = prepare_model_inputs
