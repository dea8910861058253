"""Forward chat completions to the policy's own servers, without what litellm does for those of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from pydantic_core import from_json, to_json

from sql_agent.system.tokens import bearer

PATHS = ("/v1/chat/completions", "/chat/completions")
_PREFIX = "hosted_vllm/"
# Numbers for the span, which the agent does not read: they are most of a reply.
_FOR_SPANS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_versions")
_CONNECT_S = 10.0


@dataclass(frozen=True)
class Answer:
    """What goes back to the caller, and the policy's whole reply, None when it did not answer well."""

    status: int
    body: bytes
    reply: Mapping[str, Any] | None


class PolicyCalls:
    """Sends calls to the servers of `models`, the entries of a proxy's model list.

    litellm's own way takes ten times the processor time of a call, for what only other servers than ours need.
    """

    def __init__(self, models: Sequence[Mapping[str, Any]]) -> None:
        self._models = {entry["model_name"]: entry["litellm_params"] for entry in models}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the policy."""
        if self._session is not None:
            await self._session.close()

    async def answer(self, body: bytes) -> Answer:
        """Forward the call `body` to the policy that it names, and return its answer; an error becomes a status."""
        try:
            call = from_json(body)
            model = self._models[call["model"]]
        except (ValueError, KeyError, TypeError) as error:
            return _failed(400, f"no call of a known model ({', '.join(self._models)}): {error!r}")
        call |= {"model": model["model"].removeprefix(_PREFIX), "return_token_ids": True}
        if "tools" in call:
            call["tools"] = _plain(call["tools"])
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                headers={"Content-Type": "application/json"},
            )
        url, key = f"{model['api_base']}/chat/completions", bearer(model["api_key"])
        try:
            async with self._session.post(url, data=to_json(call), headers=key) as response:
                status, content = response.status, await response.read()
            reply = from_json(content) if status == 200 else None
        except Exception as error:  # aiohttp lets a RuntimeError of uvloop through
            return _failed(502, f"the policy at {model['api_base']} did not answer: {type(error).__name__}: {error}")
        if reply is None:
            return Answer(status, content, None)
        return Answer(status, to_json({key: reply[key] for key in reply if key not in _FOR_SPANS}), reply)


def _plain(schema: Any) -> Any:
    """Return a schema of tools without `strict` and `additionalProperties`, as litellm sends it to a vLLM server."""
    if isinstance(schema, dict):
        left_out = {"strict"} | ({"additionalProperties"} if schema.get("additionalProperties") is False else set())
        return {key: _plain(value) for key, value in schema.items() if key not in left_out}
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return schema


def _failed(status: int, message: str) -> Answer:
    return Answer(status, to_json({"error": {"message": message, "type": "policy", "code": status}}), None)
