"""Name the model that the agent asks. Of its own, because openai-agents takes a second to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelEndpoint:
    """Names an OpenAI-compatible chat endpoint and how to sample from it."""

    base_url: str
    model: str
    api_key: str
    temperature: float
    top_p: float
