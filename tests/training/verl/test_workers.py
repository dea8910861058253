"""In verl's workers the weights that adapters leave as they are stay in bf16, and the adapters are fp32."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch


@pytest.mark.parametrize(("strategy", "dtype"), [("fsdp", torch.float32), ("fsdp2", torch.bfloat16)])
def test_adapters_of_fsdp1_are_fp32(
    monkeypatch: pytest.MonkeyPatch, tiny_model_folder: Path, strategy: str, dtype: torch.dtype
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    class Engine:
        engine_config = SimpleNamespace(strategy=strategy)

        def _build_lora_module(self, module: Any) -> Any:
            adapters = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
            return get_peft_model(module, adapters).to(torch.bfloat16)

    name = "verl.workers.engine.fsdp.transformer_impl"
    modules: dict[str, Any] = {part: ModuleType(part) for part in (name.rsplit(".", n)[0] for n in range(4, 0, -1))}
    modules[name] = ModuleType(name)
    modules[name].FSDPEngine = Engine
    modules["sql_agent.training.verl.shared_prompts"] = ModuleType("shared_prompts")
    for module, stand_in in modules.items():
        monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.delitem(sys.modules, "sql_agent.training.verl.workers", raising=False)
    import_module("sql_agent.training.verl.workers")
    monkeypatch.delitem(sys.modules, "sql_agent.training.verl.workers")

    base = AutoModelForCausalLM.from_pretrained(tiny_model_folder, dtype=torch.bfloat16)
    parameters = list(Engine()._build_lora_module(base).parameters())
    assert {p.dtype for p in parameters if p.requires_grad} == {dtype}
    assert {p.dtype for p in parameters if not p.requires_grad} == {torch.bfloat16}
