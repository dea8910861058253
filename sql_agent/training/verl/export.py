"""Complete the model folder that verl's model merger has written, so that transformers and vLLM can load it."""

from __future__ import annotations

import json
from pathlib import Path

from peft import PeftModel
from transformers import AutoModelForCausalLM

from sql_agent.config.sections import AgentSettings
from sql_agent.training.serving.tokenizer import DEFAULT_AGENT, load_tokenizer


def complete_model_folder(folder: Path, agent: AgentSettings = DEFAULT_AGENT) -> None:
    """Turn `folder` into an ordinary Hugging Face folder, which needs none of our code.

    LoRA adapters are merged, and the name of our attention kernel is removed. The tokenizer gets the chat template of
    the run; `agent` has the run's settings of the section `agent`.
    """
    _remove_attention(folder / "config.json")
    _merge_adapter(folder)
    # The policy was trained with the run's chat template, or with one of ours if the model's own renders no tools.
    load_tokenizer(str(folder), agent).save_pretrained(folder)


def _remove_attention(config: Path) -> None:
    """Remove the name of our attention kernel from a model's config.json; other programs do not have the kernel."""
    values = json.loads(config.read_text(encoding="utf-8"))
    values.pop("attn_implementation", None)
    config.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _merge_adapter(folder: Path) -> None:
    """Merge the LoRA adapters into the weights, because verl's merger writes the adapters as separate files."""
    adapter = folder / "lora_adapter"
    if not adapter.exists():
        return
    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", trust_remote_code=False)
    PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().save_pretrained(folder)
