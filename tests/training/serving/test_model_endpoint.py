"""vLLM, replaced by a script with its interface, serves a folder as the other backends do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from transformers import AutoTokenizer

from sql_agent.errors import ModelError
from sql_agent.system.servers import bearer
from sql_agent.training.serving.model_endpoint import vllm_endpoint
from sql_agent.training.serving.tokenizer import load_encoder

CALL = '<tool_call>\n{"name": "query_database_by_sql", "arguments": {"sql": "SELECT 1"}}\n</tool_call><|im_end|>'


class FakeLLM:
    """Says CALL to every prompt, in two parts, as vLLM hands out all tokens until now."""

    opened: list[FakeLLM]

    def __init__(self, arguments: Any) -> None:
        if arguments.model == "broken":
            raise ValueError("no such architecture\nand more")
        self.ids = AutoTokenizer.from_pretrained(arguments.model).encode(CALL, add_special_tokens=False)
        self.gpu_share = arguments.gpu_memory_utilization
        self.cache = getattr(arguments, "kv_cache_memory_bytes", None)
        self.model_config = SimpleNamespace(max_model_len=4096)
        self.sampled: list[Any] = []
        self.is_closed = False
        FakeLLM.opened.append(self)

    @classmethod
    def from_engine_args(cls, arguments: Any) -> FakeLLM:
        return cls(arguments)

    async def generate(self, prompt: Any, parameters: Any, *, request_id: str) -> AsyncIterator[Any]:
        self.sampled.append((prompt, parameters))
        for end in (5, len(self.ids)):
            yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=self.ids[:end])])

    def shutdown(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _fake_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm, engine = ModuleType("vllm"), ModuleType("vllm.v1.engine.async_llm")
    for name in ("AsyncEngineArgs", "SamplingParams", "TokensPrompt"):
        setattr(vllm, name, SimpleNamespace)
    engine.AsyncLLM = FakeLLM  # type: ignore[attr-defined]
    modules = {"vllm": vllm, "vllm.v1": ModuleType("v1"), "vllm.v1.engine": ModuleType("engine")}
    for name, module in (modules | {"vllm.v1.engine.async_llm": engine}).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    FakeLLM.opened = []


def test_a_folder_is_asked_with_its_own_template_and_its_calls_are_parsed(tiny_model_folder: Path) -> None:
    request = {"model": "policy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 99, "temperature": 0}
    with vllm_endpoint(str(tiny_model_folder), seed=1) as (base_url, key):
        reply = httpx.post(f"{base_url}/chat/completions", json=request, headers=bearer(key), timeout=30).json()
    (call,) = reply["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "query_database_by_sql", "arguments": '{"sql": "SELECT 1"}'}
    (llm,) = FakeLLM.opened
    ((prompt, parameters),) = llm.sampled
    assert reply["usage"]["prompt_tokens"] == len(prompt.prompt_token_ids)
    assert reply["usage"]["completion_tokens"] == len(llm.ids)
    assert (parameters.temperature, parameters.max_tokens) == (0, 99)
    assert llm.ids[-1] in parameters.stop_token_ids
    assert llm.is_closed


def test_vllm_leaves_a_training_on_the_same_gpu_its_memory(
    tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (40 * 2**30, 80 * 2**30))
    with vllm_endpoint(str(tiny_model_folder), seed=1):
        assert [llm.gpu_share for llm in FakeLLM.opened] == [0.45]


def test_vllm_measures_no_memory_where_the_size_of_its_cache_is_given(tiny_model_folder: Path) -> None:
    memory = {"gpu_memory_utilization": 0.3, "kv_cache_memory_bytes": 2**30}
    with vllm_endpoint(str(tiny_model_folder), seed=1, memory=memory):
        assert [(llm.gpu_share, llm.cache) for llm in FakeLLM.opened] == [(0.3, 2**30)]


def test_a_prompt_that_is_too_long_is_the_model_s_failure(tiny_model_folder: Path) -> None:
    request = {"model": "policy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4096}
    with vllm_endpoint(str(tiny_model_folder), seed=1) as (base_url, key):
        reply = httpx.post(f"{base_url}/chat/completions", json=request, headers=bearer(key), timeout=30)
    assert reply.status_code == 400
    assert "context length" in reply.json()["error"]["message"]


def test_a_model_that_vllm_refuses_is_named_with_the_reason(
    tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load_encoder(str(tiny_model_folder))
    monkeypatch.setattr("sql_agent.training.serving.model_endpoint.load_encoder", lambda *_: encoder)
    with (
        pytest.raises(ModelError, match="vLLM cannot serve 'broken': no such architecture"),
        vllm_endpoint("broken", seed=0),
    ):
        pass
