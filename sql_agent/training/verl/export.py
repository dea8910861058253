"""Complete the model folder that verl's merger wrote, so that other programs can load it."""

from __future__ import annotations

import json
from pathlib import Path

from peft import PeftModel
from transformers import AutoModelForCausalLM

from sql_agent.training.serving.tokenizer import load_tokenizer


def complete_model_folder(folder: Path) -> None:
    """Make `folder` an ordinary Hugging Face folder: adapters in the weights, no kernel of ours, our chat template."""
    _forget_attention(folder / "config.json")
    _fold_adapter(folder)
    # With the template that the policy was trained with, should its own not know tools.
    load_tokenizer(str(folder)).save_pretrained(folder)


def _forget_attention(config: Path) -> None:
    """Remove the attention kernel from a model's config.json, because other programs do not know ours."""
    values = json.loads(config.read_text(encoding="utf-8"))
    values.pop("attn_implementation", None)
    config.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _fold_adapter(folder: Path) -> None:
    """Add to the weights what was learned with --lora-rank; verl's merger only puts it beside the untrained ones."""
    adapter = folder / "lora_adapter"
    if not adapter.exists():
        return
    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
    PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().save_pretrained(folder)
