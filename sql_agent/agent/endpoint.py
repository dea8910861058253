"""The endpoint that the agent calls; a module without openai-agents, which takes a second to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelEndpoint:
    """An OpenAI-compatible chat endpoint and the temperature to sample with."""

    base_url: str
    model: str
    api_key: str
    temperature: float
