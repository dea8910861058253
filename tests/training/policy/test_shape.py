"""Parameters and bytes that are reckoned from a config.json are those of the real model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from sql_agent.training.policy import attention
from sql_agent.training.policy.model_config import Shape
from tests.support.model_shapes import config_of_size


def shape_of(config: dict[str, Any]) -> Shape:
    shape = Shape.of(config)
    assert shape is not None
    return shape


@pytest.mark.parametrize(
    ("size", "parameters", "cache_bytes"),
    [("0.5B", 494_032_768, 12_288), ("1.5B", 1_543_714_304, 28_672), ("7B", 7_615_616_512, 57_344)],
)
def test_published_sizes_are_reckoned_exactly(size: str, parameters: int, cache_bytes: int) -> None:
    shape = shape_of(config_of_size(size))
    assert (shape.parameters, shape.cache_bytes) == (parameters, cache_bytes)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen2", "num_key_value_heads": 4, "tie_word_embeddings": True},
        {"model_type": "llama", "num_key_value_heads": 2, "tie_word_embeddings": False},
        {"model_type": "mistral", "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": False},
    ],
)
def test_parameters_and_adapters_are_those_of_the_model(config: dict[str, Any]) -> None:
    from peft import LoraConfig, get_peft_model

    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = config | sizes | {"vocab_size": 100}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert shape_of(config).parameters == sum(p.numel() for p in model.parameters())
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert shape_of(config).adapter_parameters(4) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_bytes_of_a_layer_are_what_autograd_keeps(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_by_segment", lambda q, k, v, *_: Kernel.apply(q, k, v))
    attention.register()
    few, more = (kept_bytes(config_of_size("0.5B") | {"num_hidden_layers": n, "vocab_size": 64}, dtype) for n in (1, 3))
    shape = shape_of(config_of_size("0.5B"))
    reckoned = shape.layer_bytes if dtype == torch.bfloat16 else shape.autocast_layer_bytes
    assert (more - few) / 2 == pytest.approx(reckoned, rel=0.03)


class Kernel(torch.autograd.Function):  # type: ignore[misc]
    """Keeps what PyTorch's kernel on GPUs keeps: queries, keys, values and output, all contiguous and in bf16."""

    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.bfloat16().contiguous() for each in inputs)
        output = q + k + v
        ctx.save_for_backward(q, k, v, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return gradient, gradient, gradient


def kept_bytes(config: dict[str, Any], dtype: torch.dtype) -> float:
    """Return the bytes that autograd keeps for each token of a forward pass under bf16 autocast, without weights."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).to(dtype).train()
    model.set_attn_implementation(attention.NAME)
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = 64
    positions = torch.arange(tokens)[None]
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        model.model(input_ids=positions % 60, position_ids=positions, use_cache=False)
    # Weights, and what autocast makes of them, have no dimension of tokens.
    sizes = (t.untyped_storage().nbytes() for t in kept.values() if tokens in t.shape and t.dtype.is_floating_point)
    return float(sum(sizes)) / tokens
