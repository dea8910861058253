"""Check files of weights without loading them; nothing in them is unpickled."""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from pathlib import Path

from sql_agent.errors import ModelError

_AGAIN = "copy it again; it may have been cut off"
_PICKLE = b"\x80"  # the first byte of a pickle, in which torch wrote before version 1.6
_GGUF = b"GGUF"


def check_weights(path: Path) -> None:
    """Raise ModelError unless `path` looks whole: as safetensors, a GGUF file or, by any other name, one of torch."""
    if path.suffix == ".safetensors":
        parameters_in(path)
    elif path.suffix == ".gguf":
        with path.open("rb") as file:
            if file.read(len(_GGUF)) != _GGUF:
                raise ModelError(f"{path} is no GGUF file", hint=_AGAIN)
    else:
        check_torch_file(path)


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
        raise ModelError(f"{path} is no safetensors file", hint=_AGAIN) from None
    size = path.stat().st_size
    if size != end:
        raise ModelError(f"{path} has {size} bytes, and its header says {end}", hint="copy it again")
    return count


def check_torch_file(path: Path, *, all_of_it: bool = False) -> None:
    """Raise ModelError unless torch wrote `path`, and wrote it to its end.

    Torch writes a zip file: its list of parts is at the end, and has a checksum of each. The pickle that describes the
    tensors is read to check it; with `all_of_it` the tensors are, too. Of an old file, a bare pickle, only the start
    can be checked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("data.pkl")]
            for name in archive.namelist() if all_of_it else pickles:
                with archive.open(name) as part:
                    while part.read(1 << 20):  # which raises where the checksum differs
                        pass
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError):  # as the module says it
        with path.open("rb") as file:
            if file.read(1) != _PICKLE:
                raise ModelError(f"{path} was cut off or changed", hint=_AGAIN) from None
        return
    if not pickles:
        raise ModelError(f"{path} is a zip file, and none that torch wrote", hint=_AGAIN)
