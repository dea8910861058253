"""Read a model's context length and dimensions from its config.json; compute parameters and bytes in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.system.files import read_object

_STRETCHING = {"yarn", "linear", "dynamic"}  # types of RoPE scaling not included in max_position_embeddings
_NAMES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def context_of(model: str) -> int | None:
    """Return the context length of `model` in tokens, or None if `config_of` finds no config.json with this length."""
    config = config_of(model) or {}
    longest = config.get("max_position_embeddings")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if longest and scaling.get("rope_type", scaling.get("type")) in _STRETCHING:
        return int((scaling.get("original_max_position_embeddings") or longest) * scaling.get("factor", 1.0))
    return longest if isinstance(longest, int) else None


def config_of(model: str) -> dict[str, Any] | None:
    """Return the config.json of `model`, a folder or a hub id, or None if the folder or the local hub cache lacks it.

    For a multimodal model, return only the part about the language model.
    """
    path = Path(model) / "config.json"
    if not model:
        return None
    if not path.is_file():
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  slow to import

        cached = None if path.is_absolute() else try_to_load_from_cache(model, "config.json")
        if not isinstance(cached, str):
            return None
        path = Path(cached)
    config = read_object(path, hint="copy the model again; it may be incomplete")
    return dict(config.get("text_config", config))


@dataclass(frozen=True)
class Shape:
    """The dimensions of a dense decoder with gated MLPs, such as Qwen, Llama, Mistral or Gemma.

    `queries` and `keys` are the widths of a layer's queries and keys: the number of heads times the head size.
    """

    hidden: int
    intermediate: int
    layers: int
    queries: int
    keys: int
    vocabulary: int
    is_tied: bool = False
    has_bias: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape | None:
        """Return the shape from a config.json, or None for a mixture of experts or if a dimension is missing."""
        if any(config.get(name) for name in _EXPERTS) or not all(isinstance(config.get(name), int) for name in _NAMES):
            return None
        hidden, intermediate, layers, heads, vocabulary = (int(config[name]) for name in _NAMES)
        size = config.get("head_dim") or hidden // heads
        return cls(
            hidden, intermediate, layers,
            queries=heads * size,
            keys=(config.get("num_key_value_heads") or heads) * size,
            vocabulary=vocabulary,
            is_tied=bool(config.get("tie_word_embeddings", False)),
            has_bias=config.get("model_type") == "qwen2" or bool(config.get("attention_bias")),
        )  # fmt: skip

    @property
    def layer_parameters(self) -> int:
        attention = 2 * self.hidden * (self.queries + self.keys)
        bias = self.queries + 2 * self.keys if self.has_bias else 0
        return attention + bias + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> int:
        return self.embedding_parameters + self.layers * self.layer_parameters + self.hidden

    def adapter_parameters(self, rank: int) -> int:
        attention = 4 * self.hidden + 2 * self.queries + 2 * self.keys
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    @property
    def layer_bytes(self) -> int:
        """The bytes that a layer keeps for each token until its backward pass, in bf16.

        Each of the two norms keeps its input in fp32 and its output twice. Attention keeps the queries, keys and values
        of all heads, and its output. The MLP keeps the gate before and after the activation, the output of the up
        projection, and the product of both.
        """
        return 16 * self.hidden + 8 * self.queries + 8 * self.intermediate

    @property
    def autocast_layer_bytes(self) -> int:
        """`layer_bytes` for fp32 weights under autocast, where norms are fp32 and linear layers keep bf16 inputs."""
        return 26 * self.hidden + 8 * self.queries + 8 * self.intermediate

    @property
    def cache_bytes(self) -> int:
        """The bytes of a token in a bf16 key-value cache."""
        return 4 * self.layers * self.keys
