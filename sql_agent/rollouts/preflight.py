"""Check before the first training step that OpenTelemetry is usable and that a model call returns its token ids."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sql_agent.config.endpoints import NO_API_KEY
from sql_agent.errors import PreflightError

if TYPE_CHECKING:
    import agentlightning as agl

_OPENTELEMETRY_CAP = (1, 45)
_CALL_TIMEOUT_S = 60.0
_RETRIES = 2  # maximum number of retries: a proxy that dies is replaced


def check_opentelemetry() -> None:
    """Raise PreflightError for OpenTelemetry 1.45 or newer, with which agent-lightning loses all spans silently."""
    installed = version("opentelemetry-sdk")
    if tuple(int(part) for part in installed.split(".")[:2]) >= _OPENTELEMETRY_CAP:
        raise PreflightError(
            f"opentelemetry-sdk {installed} loses every span of agent-lightning 0.3.0",
            hint="pip install 'opentelemetry-sdk<1.45' 'opentelemetry-api<1.45'",
        )


async def check_triplet(
    store: agl.LightningStore, resource: agl.ProxyLLM, adapter: Any, *, deadline_s: float = 15.0
) -> agl.Triplet:
    """Call the model once through the LLM proxy `resource`, and return the triplet of the call from `store`.

    Raises PreflightError when the model does not answer, or when no triplet with the token ids of prompt and response
    arrives within `deadline_s` seconds.
    """
    rollout = await store.start_rollout(input={"preflight": True}, mode="test")
    url = resource.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
    await _call(url, resource.model, resource.api_key or NO_API_KEY)
    triplet = await _first_triplet(store, adapter, rollout.rollout_id, deadline_s)
    await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
    return triplet


async def _call(url: str, model: str, api_key: str) -> None:
    # Imported here, because the import is slow and other checks run first.
    from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient, OpenAIError  # noqa: PLC0415

    http = DefaultAsyncHttpxClient(trust_env=False)  # the run's own proxy is not behind http_proxy
    try:
        async with AsyncOpenAI(
            base_url=url, api_key=api_key, timeout=_CALL_TIMEOUT_S, max_retries=_RETRIES, http_client=http
        ) as client:
            await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=4
            )
    except BadRequestError as error:
        raise PreflightError(
            f"the model refuses a call of one word: {error}",
            hint="if its chat template does not fit into the context, raise local.max_context",
        ) from error
    except OpenAIError as error:
        raise PreflightError(
            f"the LLM proxy at {url} did not answer: {type(error).__name__}: {error}",
            hint="check that the model server behind the proxy runs; run `python utils/check_install.py`",
        ) from error


async def _first_triplet(store: agl.LightningStore, adapter: Any, rollout_id: str, deadline_s: float) -> agl.Triplet:
    deadline = time.monotonic() + deadline_s
    while True:
        spans = await store.query_spans(rollout_id, "latest")
        triplet: agl.Triplet
        for triplet in adapter.adapt(spans):
            if triplet.prompt.get("token_ids") and triplet.response.get("token_ids"):
                return triplet
        if time.monotonic() > deadline:
            names = sorted({span.name for span in spans})
            raise PreflightError(
                f"a call through the proxy left {len(spans)} spans in the store ({', '.join(names) or 'none'}) "
                "but no triplet with token ids",
                hint="the model server must return prompt_token_ids and token_ids, under a hosted_vllm/ model name",
            )
        await asyncio.sleep(0.1)
