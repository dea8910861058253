"""Look into a model folder before anything slow is imported: is it one, and how many parameters has the model?"""

from __future__ import annotations

import math
from pathlib import Path

from sql_agent.errors import ModelError

_EMBEDDED = 134_515_008  # parameters of SmolLM2-135M
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


def check_model_folder(model: str) -> None:
    """Raise ModelError when `model` is a path but not a Hugging Face folder, or has a damaged safetensors file.

    An empty `model` is the embedded one. The content of other files is left to the library that loads them.
    """
    folder = Path(model)
    if not model or folder.is_dir():
        if model and (lacks := _missing_parts(folder)):
            raise ModelError(
                f"{model} is not a Hugging Face model folder: {', '.join(lacks)} missing",
                hint="in a checkpoint it is CHECKPOINT/model; for a checkpoint of verl run `sql-agent export` first",
            )
        count_parameters(model)
    elif folder.exists() or folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ModelError(f"there is no model folder {model}", hint="give --model a Hugging Face folder or id")


def count_parameters(model: str) -> int | None:
    """Return the number of parameters of `model`, from the headers of its safetensors files; None without any.

    Raises ModelError for a file that is not one, or that was cut off.
    """
    if not model:
        return _EMBEDDED
    files = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    return sum(map(_parameters_in, files)) if files else None


def _missing_parts(folder: Path) -> list[str]:
    parts = {"config.json": ("config.json",), "weights": _WEIGHTS, "a tokenizer": ("tokenizer*", "vocab*")}
    return [part for part, names in parts.items() if not any(any(folder.glob(name)) for name in names)]


def _parameters_in(path: Path) -> int:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  not needed for a model behind an endpoint

    try:
        with safe_open(path, framework="np") as weights:
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise ModelError(f"{path} is damaged: {error}", hint="copy it again; it may have been cut off") from None
