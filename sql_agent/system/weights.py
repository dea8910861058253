"""Check files of weights without loading them."""

from __future__ import annotations

import json
import math
from pathlib import Path

from sql_agent.errors import ModelError


def parameters_in(path: Path) -> int:
    """Return how many numbers a safetensors file holds: 8 bytes of length, a JSON header with shapes, the numbers.

    Raises ModelError when it is none, or not as long as its header says.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
        end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
        count: int = sum(math.prod(tensor["shape"]) for tensor in tensors)
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError, MemoryError):
        raise ModelError(f"{path} is no safetensors file", hint="copy it again; it may have been cut off") from None
    size = path.stat().st_size
    if size != end:
        raise ModelError(f"{path} has {size} bytes, and its header says {end}", hint="copy it again")
    return count
