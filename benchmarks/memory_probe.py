"""Write the peak of the GPU memory that verl's trainer allocates in each part of a step to the file MEMORY_PROBE.

verl imports this module in each worker in place of `sql_agent.training.verl.workers`, which it imports first.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from sql_agent.training.verl import workers

__all__ = ["workers"]


def _record(part: str) -> None:
    """Write the peak since the last record as that of `part`."""
    torch.cuda.synchronize()
    peak = {"allocated": torch.cuda.max_memory_allocated() / 1e9, "reserved": torch.cuda.max_memory_reserved() / 1e9}
    with Path(os.environ["MEMORY_PROBE"]).open("a", encoding="utf-8") as sink:
        sink.write(json.dumps({"part": part, **peak}) + "\n")
    torch.cuda.reset_peak_memory_stats()


def _probe(method: Callable[..., Any], before: str, part: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def probed(self: Any, *args: Any, **options: Any) -> Any:
        _record(before)
        try:
            return method(self, *args, **options)
        finally:
            _record(part)

    return probed


# What lies between two updates is the copy of the weights for vLLM.
FSDPEngine.forward_backward_batch = _probe(FSDPEngine.forward_backward_batch, "rollouts", "update")
FSDPEngine.optimizer_step = _probe(FSDPEngine.optimizer_step, "update", "AdamW's step")
