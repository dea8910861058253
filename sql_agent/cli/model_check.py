"""Check the folder of a model before anything slow is imported: its parts, its JSON files, its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from sql_agent.errors import ModelError
from sql_agent.system.json_files import read_object
from sql_agent.system.validation import first_problem
from sql_agent.system.weights import check_weights, parameters_in

_Kind = TypeVar("_Kind", bound=BaseModel)
_EMBEDDED = 134_515_008  # parameters of SmolLM2-135M
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")  # transformers loads the first of these that a folder has
_INDICES = ("*.safetensors.index.json", "*.bin.index.json")
_AGAIN = "copy that file again; it may have been cut off"


class _Config(BaseModel):
    """Holds what every causal language model says of itself in config.json, and whatever else it says."""

    model_config = ConfigDict(strict=True)
    model_type: str
    vocab_size: PositiveInt | None = None
    hidden_size: PositiveInt | None = None
    num_hidden_layers: PositiveInt | None = None
    num_attention_heads: PositiveInt | None = None


class _Tokenizer(BaseModel):
    """Holds what the library `tokenizers` cannot do without in tokenizer.json."""

    model: dict[str, Any]


class _Index(BaseModel):
    """Says in which file of a folder each weight is."""

    weight_map: dict[str, str]


class _Object(BaseModel):
    """Represents any JSON object."""


# The files that transformers reads, by what they must hold.
_FILES: dict[str, type[BaseModel]] = {
    "config.json": _Config,
    "tokenizer.json": _Tokenizer,
    "tokenizer_config.json": _Object,
    "special_tokens_map.json": _Object,
    "added_tokens.json": _Object,
    "vocab.json": _Object,
    "generation_config.json": _Object,
}


def check_model_folder(model: str) -> None:
    """Raise ModelError or DataError when `model` is a path, and no Hugging Face folder that looks whole.

    That is one with a configuration, a tokenizer and weights. The error names the damaged file, and its line. An empty
    `model` is the embedded one, of which nothing has to be there.
    """
    if not model:
        return
    folder = Path(model)
    if not folder.exists():
        if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:  # else the id of a hub
            raise ModelError(f"there is no model folder {model}", hint="give --model a Hugging Face folder or id")
        return
    lacks = [
        what
        for what, names in {
            "config.json": ("config.json",),
            "weights": _WEIGHTS,
            "a tokenizer": ("tokenizer*", "vocab*"),
        }.items()
        if not any(any(folder.glob(name)) for name in names)
    ]
    if lacks:
        raise ModelError(
            f"{model} is no Hugging Face model folder: it lacks {', '.join(lacks)}",
            hint="a checkpoint's is CHECKPOINT/model; one of verl is made into a folder by `sql-agent export`",
        )
    for name, kind in _FILES.items():
        if (folder / name).exists():
            _read(folder / name, kind)
    for index in (path for pattern in _INDICES for path in folder.glob(pattern)):
        _check_index(index)
    for path in _weights(folder):
        check_weights(path)


def count_parameters(model: str) -> int | None:
    """Return how many parameters `model` has, from the headers of its safetensors files; None where there are none."""
    if not model:
        return _EMBEDDED
    files = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    return sum(map(parameters_in, files)) if files else None


def _weights(folder: Path) -> list[Path]:
    return next((found for pattern in _WEIGHTS if (found := sorted(folder.glob(pattern)))), [])


def _check_index(path: Path) -> None:
    shards = sorted(set(_read(path, _Index).weight_map.values()))
    if missing := [shard for shard in shards if not (path.parent / shard).exists()]:
        raise ModelError(
            f"{path} names {len(shards)} files of weights, and {', '.join(missing)} is not there",
            hint="copy the folder again, or go on with its download",
        )


def _read(path: Path, kind: type[_Kind]) -> _Kind:
    values = read_object(path, hint=_AGAIN)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ModelError(f"{path} is damaged: {first_problem(error)}", hint=_AGAIN) from None
