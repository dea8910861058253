"""Check before anything slow is imported that a model can be loaded, and count its parameters."""

from __future__ import annotations

import math
import re
from pathlib import Path

from sql_agent.errors import ModelError

_EMBEDDED = 134_515_008  # parameters of SmolLM2-135M
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HUB_TIMEOUT_S = 5.0
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


def check_model(model: str) -> None:
    """Raise ModelError unless `model` is a Hugging Face folder, an id of the hub, or "" for the embedded model.

    In a folder the safetensors files are looked at; the content of other files is left to the library that loads them.
    For an id the hub is asked once, unless the model is in the hub's cache: the library that loads a model tries for
    more than a minute when the hub cannot be reached.
    """
    check_model_folder(model)
    if not model or Path(model).is_dir():
        return
    from huggingface_hub import HfApi, try_to_load_from_cache  # noqa: PLC0415  slow, and only needed for the hub

    if isinstance(try_to_load_from_cache(model, "config.json"), str):
        return
    try:
        HfApi().model_info(model, timeout=_HUB_TIMEOUT_S)
    except Exception as error:  # the hub's client raises errors of requests, httpx or httpx2, by its version
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"there is no folder {model}, and the hub did not return a model of that name: {reason}",
            hint="give a Hugging Face folder, correct OWNER/NAME, or look at the network",
        ) from None


def check_model_folder(model: str) -> None:
    """Raise ModelError when `model` is neither a whole Hugging Face folder nor of the form of an id of the hub."""
    folder = Path(model)
    if not model or folder.is_dir():
        if model and (lacks := _missing_parts(folder)):
            raise ModelError(
                f"{model} is not a Hugging Face model folder: {', '.join(lacks)} missing",
                hint="in a checkpoint it is CHECKPOINT/model; for a checkpoint of verl run `sql-agent export` first",
            )
        count_parameters(model)
    elif not is_hub_id(model):
        raise ModelError(
            f"there is no model folder {model}", hint="give a Hugging Face folder, or OWNER/NAME of the hub"
        )


def is_hub_id(model: str) -> bool:
    """Return whether `model` is OWNER/NAME of the hub rather than a path: no folder of this machine is called OWNER."""
    owner = model.partition("/")[0]
    return _HUB_ID.fullmatch(model) is not None and owner != "runs" and not Path(owner).exists()


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
