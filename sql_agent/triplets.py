"""Spans of the LLM proxy to triplets, with the log-probabilities and weight versions that came with the tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import agentlightning as agl

_PREFIX = "llm.hosted_vllm."
_EXTRAS = {"logprobs": f"{_PREFIX}response_logprobs", "versions": f"{_PREFIX}response_versions"}


class CallTriplets(agl.LlmProxyTraceToTriplet):  # type: ignore[misc]
    """agent-lightning's adapter, which also keeps what the server said of the sampling.

    `response["logprobs"]` holds one float per response id, `response["versions"]` the first and last version of the
    weights; each only when the server gave it.
    """

    def adapt(self, source: Sequence[Any], /) -> list[agl.Triplet]:
        """The calls among the spans of one rollout, in order."""
        calls = {s.attributes[f"{_PREFIX}id"]: s.attributes for s in source if f"{_PREFIX}id" in (s.attributes or {})}
        triplets: list[agl.Triplet] = super().adapt(source)
        for triplet in triplets:
            attributes = calls.get(triplet.metadata["response_id"], {})
            for name, key in _EXTRAS.items():
                if key in attributes:
                    triplet.response[name] = json.loads(str(attributes[key]))
        return triplets

    def _literal_eval_maybe(self, v: Any) -> Any:
        # Lists of numbers read the same as JSON, which parses them some ten times faster.
        if isinstance(v, str):
            try:
                return json.loads(v)
            except ValueError:
                return super()._literal_eval_maybe(v)
        return v
