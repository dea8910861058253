"""Number the calls of the model within their rollout, in the runner that makes them."""

from __future__ import annotations

import re
from collections import Counter

import httpx2

SEQUENCE_HEADER = "x-sequence-id"
_ROLLOUT = re.compile(r".*/rollout/([^/]+)/attempt/")  # in the path of an LLM proxy


class CallNumbers:
    """Writes into each request to an LLM proxy which call of its rollout it is, from 1; a hook of an HTTP client.

    The proxy records the call under this number. It need not ask the store for one, whose single thread spends its time
    per request.
    """

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()  # calls by rollout

    async def __call__(self, request: httpx2.Request) -> None:
        """Number a request that is about to be sent; one that is no call of a rollout stays as it is."""
        if match := _ROLLOUT.match(request.url.path):
            self._made[match[1]] += 1
            request.headers[SEQUENCE_HEADER] = str(self._made[match[1]])

    def pop(self, rollout_id: str) -> int:
        """Return how many calls an ended rollout made, and forget it."""
        return self._made.pop(rollout_id, 0)
