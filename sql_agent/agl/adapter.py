"""Spans of a rollout to triplets, with the log-probabilities and weight versions that came with the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import agentlightning as agl
from agentlightning.semconv import LightningSpanAttributes
from pydantic_core import from_json  # two to ten times faster than json on lists of numbers

_REWARD = f"{LightningSpanAttributes.REWARD.value}.0.value"
_PREFIX = "llm.hosted_vllm."
_EXTRAS = {"logprobs": f"{_PREFIX}response_logprobs", "versions": f"{_PREFIX}response_versions"}


class TokenIdAdapter(agl.LlmProxyTraceToTriplet):  # type: ignore[misc]
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
                    triplet.response[name] = from_json(str(attributes[key]))
        return triplets

    def _maybe_reward_value(self, span: Any) -> float | None:
        return reward_of(span)

    def _literal_eval_maybe(self, v: Any) -> Any:
        # Lists of numbers read the same as JSON, which parses them some ten times faster.
        if isinstance(v, str):
            try:
                return from_json(v)
            except ValueError:
                return super()._literal_eval_maybe(v)
        return v


def final_reward(spans: Sequence[Any]) -> float | None:
    """The last reward among the spans of a rollout, None when there is none."""
    return next((reward for span in reversed(spans) if (reward := reward_of(span)) is not None), None)


def reward_of(span: Any) -> float | None:
    """What `agentlightning.emit_reward` put into the span; its own reader builds a validator for each that it reads."""
    value = (span.attributes or {}).get(_REWARD)
    return None if value is None else float(value)
