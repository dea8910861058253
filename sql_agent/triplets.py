"""Spans of the LLM proxy to triplets, with the log-probabilities that came with the tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import agentlightning as agl

_LOGPROBS = "llm.hosted_vllm.response_logprobs"
_ID = "llm.hosted_vllm.id"


class CallTriplets(agl.LlmProxyTraceToTriplet):  # type: ignore[misc]
    """agent-lightning's adapter; `response["logprobs"]` holds one float per response id when the server gave them."""

    def adapt(self, source: Sequence[Any], /) -> list[agl.Triplet]:
        """The calls among the spans of one rollout, in order."""
        logprobs = {
            span.attributes[_ID]: json.loads(str(span.attributes[_LOGPROBS]))
            for span in source
            if span.attributes and _LOGPROBS in span.attributes
        }
        triplets: list[agl.Triplet] = super().adapt(source)
        for triplet in triplets:
            values = logprobs.get(triplet.metadata["response_id"])
            if values is not None:
                triplet.response["logprobs"] = values
        return triplets

    def _literal_eval_maybe(self, v: Any) -> Any:
        # Lists of numbers read the same as JSON, which parses them some ten times faster.
        if isinstance(v, str):
            try:
                return json.loads(v)
            except ValueError:
                return super()._literal_eval_maybe(v)
        return v
