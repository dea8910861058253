"""Turn the spans of a rollout into triplets of token ids, log-probabilities and weight versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import agentlightning as agl
import orjson  # three to ten times faster than json on lists of numbers
from agentlightning.semconv import LightningSpanAttributes

_REWARD = f"{LightningSpanAttributes.REWARD.value}.0.value"
_PREFIX = "llm.hosted_vllm."
ROLE_ATTRIBUTE = "sql_agent.role"
_PROMPT_IDS, _RESPONSE_IDS = f"{_PREFIX}prompt_token_ids", f"{_PREFIX}response_token_ids"
_EXTRAS = {"logprobs": f"{_PREFIX}response_logprobs", "versions": f"{_PREFIX}response_versions"}


class TokenIdAdapter(agl.LlmProxyTraceToTriplet):  # type: ignore[misc]
    """Turns spans into triplets as agent-lightning's adapter does, and keeps the server's data about the sampling.

    `response["logprobs"]` holds one natural log-probability for each response id, `response["versions"]` the first and
    the last version of the weights that sampled (the number of updates); each is there only when the server sent it.
    `metadata["role"]` is the role that the agent played in the call, where its workflow has several.
    """

    def adapt(self, source: Sequence[Any], /) -> list[agl.Triplet]:
        """Return one triplet for each call of the model among the spans of one rollout, in order."""
        calls = {s.attributes[f"{_PREFIX}id"]: s.attributes for s in source if f"{_PREFIX}id" in (s.attributes or {})}
        triplets: list[agl.Triplet] = super().adapt(source)
        for triplet in triplets:
            attributes = calls.get(triplet.metadata["response_id"], {})
            if ROLE_ATTRIBUTE in attributes:
                triplet.metadata["role"] = attributes[ROLE_ATTRIBUTE]
            for name, key in _EXTRAS.items():
                if key in attributes:
                    triplet.response[name] = orjson.loads(attributes[key])
        return triplets

    def _maybe_reward_value(self, span: Any) -> float | None:
        return reward_of(span)

    def _extract_tokens_from_raw(self, attrs: dict[str, Any]) -> tuple[list[int], list[int]]:
        # The base class examines each id of these two lists, which takes longer than to parse them.
        try:
            return orjson.loads(attrs[_PROMPT_IDS]), orjson.loads(attrs[_RESPONSE_IDS])[0]
        except (KeyError, IndexError, TypeError, ValueError):  # of another server, or of a call that failed
            ids: tuple[list[int], list[int]] = super()._extract_tokens_from_raw(attrs)
            return ids

    def _literal_eval_maybe(self, v: Any) -> Any:
        # Lists of numbers read the same as JSON, which parses them some ten times faster.
        if isinstance(v, str):
            try:
                return orjson.loads(v)
            except ValueError:
                return super()._literal_eval_maybe(v)
        return v


def final_reward(spans: Sequence[Any]) -> float | None:
    """Return the last reward (0.0–1.1) among the spans of a rollout; None when there is none."""
    return next((reward for span in reversed(spans) if (reward := reward_of(span)) is not None), None)


def reward_of(span: Any) -> float | None:
    """Return the reward that `agentlightning.emit_reward` wrote into `span`; None for any other span.

    The attribute is read directly, because agent-lightning's own reader builds a validator for each span.
    """
    value = (span.attributes or {}).get(_REWARD)
    return None if value is None else float(value)
