"""Time the gradient of a CPU's update with the shared prompt run once, and print the memory that it needs.

    python benchmarks/shared_prefix.py [--sequences 24] [--prompt 820] [--rest 60 90]

The bundled model gets random tokens: sequences with a common prompt, a question of their own and a sampled response.
The prompt is run once for all sequences, once in each micro-batch, or in each sequence. It prints the seconds, their
ratio to the first line, and the peak of this process's memory, of which gradients are 0.5 GB; AdamW's state is 1.1 GB
more.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sql_agent.config.settings import load_settings
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.training.local.policy_service import prepare_torch, release_freed_memory
from sql_agent.training.policy.forward import SharedPrefix, token_logprobs
from sql_agent.training.policy.model import bundled_folder, load_policy


def main() -> None:
    """Compute every kind of gradient twice, and print the quicker of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=820, help="tokens that all sequences begin with")
    parser.add_argument("--rest", type=int, nargs=2, default=[60, 90], help="tokens of a question and of a response")
    arguments = parser.parse_args()
    bf16, cache = prepare_torch(), load_settings().local.cache_dir
    model = load_policy(str(bundled_folder(cache)), cache_dir=cache).model.train()
    batch = sequences(arguments.sequences, arguments.prompt, *arguments.rest)
    first = None
    print("prompt run once for  micro-batch  seconds  ratio  peak GB")
    for name, size, shared in (
        ("all", 1, True), ("all", 3, True), ("all", 8, True), ("a micro-batch", 3, False), ("a sequence", 1, False)
    ):  # fmt: skip
        seconds, peak_gb = min(measured(model, batch, size, shared=shared, bf16=bf16) for _ in range(2))
        first = first or seconds
        print(f"{name:<19}  {size:>11}  {seconds:>7.1f}  {seconds / first:>5.2f}  {peak_gb:>7.1f}", flush=True)


def sequences(number: int, prompt: int, question: int, response: int) -> list[TokenSequence]:
    """Return `number` sequences that begin with the same `prompt` tokens; all are random, `response` is a mean."""
    rng = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(100, 40_000) for _ in range(count))

    common = tokens(prompt)
    lengths = [rng.randint(response // 2, response * 3 // 2) for _ in range(number)]
    return [TokenSequence(common + tokens(question), tokens(length), (1,) * length) for length in lengths]


def measured(model: Any, batch: Sequence[TokenSequence], size: int, *, shared: bool, bf16: bool) -> tuple[float, float]:
    """Compute the gradient of `batch` in micro-batches of `size`; return the seconds and the peak memory in GB."""
    model.zero_grad()
    release_freed_memory()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    started = time.monotonic()
    of_all = SharedPrefix.of(model, batch, bf16=bf16) if shared else None
    for start in range(0, len(batch), size):
        part = batch[start : start + size]
        prefix = of_all or SharedPrefix.of(model, part, bf16=bf16)
        values, _ = token_logprobs(model, part, bf16=bf16, prefix=prefix)
        (-values.sum()).backward()
        if prefix and not shared:
            prefix.backward()
    if of_all:
        of_all.backward()
    seconds = time.monotonic() - started
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return seconds, int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e9


if __name__ == "__main__":
    main()
