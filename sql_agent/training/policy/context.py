"""Read a model's config.json, and the context length in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sql_agent.system.files import read_object

_STRETCHING = {"yarn", "linear", "dynamic"}  # types of RoPE scaling not included in max_position_embeddings


def context_of(model: str) -> int | None:
    """Return the context length, in tokens, of `model`, which is a folder or a hub id.

    Returns None when there is no config.json in the folder or in the hub's local cache, or when it lacks the length.
    """
    config = config_of(model) or {}
    longest = config.get("max_position_embeddings")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if longest and scaling.get("rope_type", scaling.get("type")) in _STRETCHING:
        return int((scaling.get("original_max_position_embeddings") or longest) * scaling.get("factor", 1.0))
    return longest if isinstance(longest, int) else None


def config_of(model: str) -> dict[str, Any] | None:
    """Return the config.json of `model`, a folder or a hub id; in a multimodal model, that of the language model.

    Returns None when there is no config.json in the folder or in the hub's local cache.
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
    language_model: dict[str, Any] = config.get("text_config", config)
    return language_model
