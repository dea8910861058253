"""The config.json of Qwen2.5 in three sizes, without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ALL = {"model_type": "qwen2", "max_position_embeddings": 32768, "num_key_value_heads": 2, "tie_word_embeddings": True}
_SIZES: dict[str, dict[str, Any]] = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 152064},
}  # fmt: skip


def config_of_size(size: str) -> dict[str, Any]:
    """Return the config.json of Qwen2.5 of a `size`: 0.5B, 1.5B or 7B."""
    return _ALL | {"vocab_size": 151936} | _SIZES[size]


def make_config(folder: Path, size: str) -> Path:
    """Write the config.json of Qwen2.5 of a `size` into `folder`, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of_size(size)), encoding="utf-8")
    return folder
