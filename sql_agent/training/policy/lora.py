"""Train LoRA adapters in place of a model's weights (Hu et al. 2021, arXiv:2106.09685), with peft."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any


def add_adapters(model: Any, rank: int) -> Any:
    """Freeze `model`, add an adapter to each of its linear layers but the output layer, and return peft's wrapper.

    `model` itself computes with the adapters from now on. New adapters change no output.
    """
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415  slow to import

    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # peft asks by the old name
        return get_peft_model(model, adapters)


def merged_copy(adapters: Any) -> Any:
    """Return a copy of the model behind the wrapper `adapters`, with the adapters merged into the weights."""
    return copy.deepcopy(adapters).merge_and_unload()


def base_copy(adapters: Any) -> Any:
    """Return a copy of the model behind the wrapper `adapters`, without the adapters."""
    return copy.deepcopy(adapters).unload()


def save_adapters(adapters: Any, folder: Path) -> None:
    """Write the adapters as a folder that peft loads."""
    adapters.save_pretrained(folder, save_embedding_layers=False)  # else peft asks the hub about the base model


def load_adapters(adapters: Any, folder: Path) -> None:
    """Replace the weights of the adapters with those in `folder`."""
    from peft import load_peft_weights, set_peft_model_state_dict  # noqa: PLC0415  slow to import

    set_peft_model_state_dict(adapters, load_peft_weights(str(folder), device="cpu"))
