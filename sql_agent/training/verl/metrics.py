"""Translate verl's metrics of a step to the names that every backend reports."""

from __future__ import annotations

import math
from collections.abc import Mapping

_UPDATE_STAGES = ("old_log_prob", "ref", "adv", "update_actor", "update_weights")


def step_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Return verl's finite metrics, and `timing/...` (seconds) and `update/grad_norm` computed from them."""
    known = {key: float(v) for key, v in values.items() if isinstance(v, (int, float)) and math.isfinite(v)}
    stages = [known[f"timing_s/{stage}"] for stage in _UPDATE_STAGES if f"timing_s/{stage}" in known]
    known |= {"timing/rollout_s": known.get("timing_s/gen", 0.0), "timing/update_s": sum(stages)}
    if "timing_s/step" in known:
        known["timing/step_s"] = known["timing_s/step"]
    if "actor/grad_norm" in known:
        known["update/grad_norm"] = known["actor/grad_norm"]
    return known
