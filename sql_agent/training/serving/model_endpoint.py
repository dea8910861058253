"""Serve a model outside of training, with vLLM on a GPU or on the CPU; prompts and replies are those of training."""

from __future__ import annotations

import importlib.util
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.config.settings_schema import AgentSettings
from sql_agent.database import DatabasePool
from sql_agent.errors import ModelError
from sql_agent.runs.console import Ui
from sql_agent.tasks.task import load_task
from sql_agent.training.local.policy_service import PolicyService, prepare_torch
from sql_agent.training.local.trainer import fine_tuned_policy, load
from sql_agent.training.serving.server import MODEL_NAME, Generation, Sampling, ServerThread, build_app
from sql_agent.training.serving.tokenizer import DEFAULT_AGENT, load_encoder


@contextmanager
def model_endpoint(
    settings: Settings, databases: DatabasePool, ui: Ui, memory: Mapping[str, Any] | None = None
) -> Iterator[ModelEndpoint]:
    """Serve `settings.model` inside the context, with vLLM if this machine has a GPU and vLLM, else on the CPU.

    Without `settings.model`, serve the bundled model after `sft.steps` steps of supervised fine-tuning. `memory` is
    passed to `vllm_endpoint`.
    """
    temperature = settings.agent.val_temperature
    has_gpu = importlib.util.find_spec("vllm") is not None and shutil.which("nvidia-smi") is not None
    if settings.model and settings.backend != "local" and has_gpu:
        ui.say(f"Serving {settings.model} with vLLM")
        with vllm_endpoint(settings.model, seed=settings.seed, agent=settings.agent, memory=memory) as (url, key):
            yield ModelEndpoint(url, MODEL_NAME, temperature, key)
        return
    bf16 = prepare_torch()
    if settings.model or not settings.sft.steps:
        with ui.status(f"Loading {settings.model or 'the model'}"):
            policy = load(settings.model, settings)
    else:
        questions = load_task(settings.task).questions(settings, "train")
        policy = fine_tuned_policy(settings, questions, databases, ui, bf16=bf16)
    with closing(PolicyService(policy, settings, ServerThread.with_key(), bf16=bf16)) as service:
        yield ModelEndpoint(service.base_url, MODEL_NAME, temperature, service.api_key)


@contextmanager
def vllm_endpoint(
    model: str, *, seed: int, agent: AgentSettings = DEFAULT_AGENT, memory: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, str]]:
    """Serve `model`, a Hugging Face folder or id, inside the context; yield the URL, ending in /v1, and the API key.

    `memory` has vLLM's options for the GPU's memory; by default, vLLM reserves nine tenths of the free memory. Raises
    ModelError when vLLM cannot load the model.
    """
    encoder, stops = load_encoder(model, agent)
    engine = VllmEngine(model, stops, seed=seed, memory=memory or {"gpu_memory_utilization": _free_share()})
    server = ServerThread.with_key()
    server.start(build_app(encoder, engine, thought_tokens=agent.thought_tokens))
    try:
        yield server.base_url, server.api_key
    finally:
        server.stop()
        engine.close()


def _free_share() -> float:
    """Return 0.9 times the free share (0–1) of the GPU's memory; vLLM does not start with more than the free share."""
    import torch  # noqa: PLC0415  slow, and `trainer` must be imported before torch

    if not torch.cuda.is_available():
        return 0.9
    free, total = torch.cuda.mem_get_info()
    return float(0.9 * free / total)


class VllmEngine:
    """Samples from a vLLM engine in another process, in bf16 like verl's rollouts."""

    def __init__(self, model: str, stops: tuple[int, ...], *, seed: int, memory: Mapping[str, Any]) -> None:
        # A forked process cannot use CUDA if its parent process has used CUDA.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        import vllm  # noqa: PLC0415  slow, and installed only on machines with a GPU
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

        self._vllm = vllm
        self._stops = stops
        arguments = vllm.AsyncEngineArgs(
            model=model, dtype="bfloat16", seed=seed, disable_log_stats=True, trust_remote_code=False, **memory
        )
        try:
            self._llm: Any = AsyncLLM.from_engine_args(arguments)
        except (OSError, RuntimeError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"vLLM cannot serve {model!r}: {reason}",
                hint="give --model another Hugging Face folder or id, or set backend=local to serve on the CPU",
            ) from error
        self.max_context: int = self._llm.model_config.max_model_len

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        """Sample one turn; `conversation` is not used, because vLLM itself finds common prefixes."""
        parameters = self._vllm.SamplingParams(
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            stop_token_ids=list(self._stops),
            detokenize=False,
        )
        prompt = self._vllm.TokensPrompt(prompt_token_ids=list(prompt_ids))
        ids: tuple[int, ...] = ()
        async for output in self._llm.generate(prompt, parameters, request_id=uuid.uuid4().hex):
            ids = tuple(output.outputs[0].token_ids)  # all ids sampled so far
        return Generation(ids, "stop" if ids and ids[-1] in self._stops else "length")

    def close(self) -> None:
        self._llm.shutdown()
