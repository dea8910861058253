"""Change verl in each of its workers; verl imports this module before it loads the model.

`actor_rollout_ref.model.external_lib` names this module.
"""

from __future__ import annotations

from typing import Any

from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from sql_agent.training.verl import shared_prompts

__all__ = ["shared_prompts"]

_build_lora_module = FSDPEngine._build_lora_module


def build_lora_module(self: Any, module: Any) -> Any:
    """Add adapters as verl does, and keep them in fp32: AdamW's small steps vanish in bf16.

    verl gives adapters the dtype of the other weights, which is bf16 here. FSDP1 shards each adapter by itself, so the
    two dtypes may differ.
    """
    module = _build_lora_module(self, module)
    if self.engine_config.strategy == "fsdp":
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    return module


FSDPEngine._build_lora_module = build_lora_module
