"""Assign the rows of a database to the splits train, val and test, so that no two splits share a row."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Sequence

from sql_agent.tasks.described.drafts import Key

SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}
MAX_CLUSTER = 10  # limit; a larger cluster of rows would unbalance the splits of a small database


class Splits:
    def __init__(self, keys: Sequence[Key], together: Iterable[frozenset[Key]], seed: int, max_cluster: int) -> None:
        """Assign the rows `keys` (table, row key) to the splits, with `SHARES` of each table.

        `together` are sets of rows that belong in one split, the most important set first. Overlapping sets form a
        cluster of at most `max_cluster` rows; a set that would exceed this limit may be divided.
        """
        self._seed = seed
        clusters = _clusters(keys, together, max_cluster)
        random.Random(seed).shuffle(clusters)
        self._split = _assign(clusters, Counter(table for table, _ in keys))

    def of(self, keys: Iterable[Key]) -> str | None:
        """Return the split that all `keys` are in, or None if they are in different splits."""
        splits = {self._split.get(key) or self._hashed(key) for key in keys}
        return splits.pop() if len(splits) == 1 else None

    def _hashed(self, key: Key) -> str:
        """Return a split for a key that is no row, such as an invented name."""
        digest = hashlib.sha256(f"{self._seed}\x00{key[0]}\x00{key[1]}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        for split, part in SHARES.items():
            share -= part
            if share < 0:
                return split
        return "train"


def _clusters(keys: Sequence[Key], together: Iterable[frozenset[Key]], max_cluster: int) -> list[list[Key]]:
    """Merge overlapping sets, in order, into clusters of at most `max_cluster` rows."""
    cluster = {key: [key] for key in keys}
    for group in together:
        parts = {id(cluster[key]): cluster[key] for key in sorted(group) if key in cluster}
        merged = [key for part in parts.values() for key in part]
        if len(parts) > 1 and len(merged) <= max_cluster:
            for key in merged:
                cluster[key] = merged
    return list({id(part): part for part in cluster.values()}.values())


def _assign(clusters: list[list[Key]], totals: Counter[str]) -> dict[Key, str]:
    """Assign each cluster, the largest first, to the split that is furthest below its share."""
    split_of: dict[Key, str] = {}
    filled = {split: Counter[str]() for split in SHARES}
    for cluster in sorted(clusters, key=len, reverse=True):
        sizes = Counter(table for table, _ in cluster)
        split = max(SHARES, key=lambda name: _room(filled[name], SHARES[name], totals, sizes))
        filled[split] += sizes
        split_of.update(dict.fromkeys(cluster, split))
    return split_of


def _room(filled: Counter[str], share: float, totals: Counter[str], sizes: Counter[str]) -> float:
    """Return the free share of a split's fullest table (1 empty, 0 full) after a cluster of `sizes` is added."""
    return min(1 - (filled[table] + size) / (share * totals[table]) for table, size in sizes.items())
