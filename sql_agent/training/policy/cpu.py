"""Prepare torch for a CPU: the number of threads, the memory allocator, and whether bf16 is faster than fp32."""

from __future__ import annotations

import ctypes
import os
import sys
import time

import torch
from torch.nn import functional

from sql_agent.system.resources import usable_cores

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # options of mallopt in <malloc.h>
_BF16_SHARE = 0.8  # bf16 is used below this share of fp32's time, because casting the weights to bf16 takes time too


def prepare_torch() -> bool:
    """Configure torch's threads and memory, and return whether bf16 is faster than fp32 on this CPU.

    torch uses all available cores, unless OMP_NUM_THREADS is set. Freed memory is kept for later tensors.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(usable_cores())
    _keep_freed_memory()
    return _bf16_is_faster()


def _bf16_is_faster() -> bool:
    """Measure whether this CPU multiplies bf16 matrices clearly faster than fp32 ones, in about 0.1 s.

    No CPU flag decides this: with AMX bf16 is several times as fast as fp32, but with avx512_bf16 alone an Intel Xeon
    did 84 GFLOP/s a core in bf16 and 160 in fp32.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with several threads the time would depend on the load of the machine
    try:
        times = [(_matmul_s(torch.bfloat16), _matmul_s(torch.float32)) for _ in range(20)]
    finally:
        torch.set_num_threads(threads)
    return min(bf16 for bf16, _ in times) < _BF16_SHARE * min(fp32 for _, fp32 in times)


def _matmul_s(dtype: torch.dtype) -> float:
    """Return the time, in seconds, of one product of matrices that are as large as those in SmolLM2's layers."""
    rows, weight = torch.ones(128, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
    started = time.perf_counter()
    functional.linear(rows, weight)
    return time.perf_counter() - started


def _keep_freed_memory() -> None:
    """Keep glibc from returning the memory of freed tensors to the kernel.

    Without this setting, a pass through the model took three times as long in a thread.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has neither mallopt nor this problem
    if mallopt is not None:
        for option, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(option, value)
