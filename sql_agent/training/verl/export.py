"""Complete the model folder that verl's merger wrote, so that transformers and vLLM load it."""

from __future__ import annotations

import json
from pathlib import Path

from peft import PeftModel
from transformers import AutoModelForCausalLM

from sql_agent.training.serving.tokenizer import load_tokenizer


def complete_model_folder(folder: Path) -> None:
    """Make `folder` an ordinary Hugging Face folder: merged adapters, no attention of ours, our chat template."""
    _remove_attention(folder / "config.json")
    _merge_adapter(folder)
    # With the chat template that the policy was trained with, in case its own does not render tools.
    load_tokenizer(str(folder)).save_pretrained(folder)


def _remove_attention(config: Path) -> None:
    """Remove our attention kernel from a model's config.json, because other programs lack it."""
    values = json.loads(config.read_text(encoding="utf-8"))
    values.pop("attn_implementation", None)
    config.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _merge_adapter(folder: Path) -> None:
    """Merge the adapters of --lora-rank into the weights; verl's merger only puts them beside the untrained weights."""
    adapter = folder / "lora_adapter"
    if not adapter.exists():
        return
    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
    PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().save_pretrained(folder)
