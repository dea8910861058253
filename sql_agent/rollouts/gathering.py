"""Say how long to gather what a store is sent, so that one request does for many."""

from __future__ import annotations

_LEAST_S, _MOST_S = 0.01, 0.1
_SHARE = 3.0  # in times of what the last request took, because a busy store answers late


def gathering_s(took_s: float) -> float:
    """Return for how many seconds to wait for more, after a request that took `took_s` seconds."""
    return min(max(_LEAST_S, _SHARE * took_s), _MOST_S)
