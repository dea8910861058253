"""Measure how many rollouts a second pass through store, scheduler and proxies: python benchmarks/rollout_path.py

No GPU and no model is needed: it runs the verl backend with the tests' replacement for verl. Store, scheduler, proxies,
runners, agent, tool and judge are the real ones; the policy is a script, in processes of its own, that answers after
`--latency` seconds. The same two calls of each rollout are also made straight to these processes ("bare"). For each
kind of store and number of runners it prints rollouts a second, their ratio to the bare ones, the processor time of a
rollout by part in milliseconds, and the memory of the process that has the store after the first and the last step.
A part's rollouts a second cannot exceed 1000 / its milliseconds times its processes; the algorithm, the store and the
trainer (the replacement for verl) are one process each. To use 16 of more cores: taskset -c 0-15 python benchmarks/…
The first row takes minutes: all processes start and make six steps of 64 rollouts a core. A quick look:
python benchmarks/rollout_path.py --stores own --rollouts 32 --steps 4
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sql_agent.schemas import Question  # noqa: E402
from tests.support.fake_verl import CALL  # noqa: E402
from tests.support.processes import served_store  # noqa: E402
from tests.support.small_database import make_database  # noqa: E402
from tests.support.tiny_model import make_tiny_model  # noqa: E402

FIRST = 2  # steps before this one are not counted
GROUP = 8
STORES = ("own", "sql-agent", "agl")  # the run's own, or one that `sql-agent store` or `agl store` serves
PARTS = ("algorithm", "store", "proxies", "runners", "policy", "trainer")


@dataclass(frozen=True)
class Measured:
    """What was seen of one run: rollouts a second, processor seconds of each by part, MB of the store's process."""

    rate: float
    cost: dict[str, float]
    memory_mb: tuple[float, float]


def main() -> None:
    """Run every kind of store with every number of runners, and print the table."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--runners", type=int, nargs="+", default=[max(2, cores // 2)])
    parser.add_argument("--proxies", type=int, default=max(2, cores // 4))
    parser.add_argument("--concurrency", type=int, default=32, help="rollouts at once in each runner")
    parser.add_argument("--policies", type=int, default=max(1, cores // 4), help="processes of the scripted policy")
    parser.add_argument("--rollouts", type=int, default=64 * cores, help="a step, in groups of eight")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds until the policy answers")
    parser.add_argument("--model", help="a Hugging Face folder whose tokenizer is used; default: a byte-level one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        arguments.model = arguments.model or str(make_tiny_model(Path(folder) / "model"))
        policies = stack.enter_context(served_policies(arguments))
        arguments.addresses = [process.stdout.readline().strip() for process in policies if process.stdout]
        bare = asyncio.run(bare_rate(arguments))
        print(
            f"{cores} cores, {arguments.rollouts} rollouts a step, {arguments.policies} policy processes that answer "
            f"after {arguments.latency} s, {arguments.proxies} proxies, "
            f"{arguments.concurrency} rollouts at once in a runner; bare calls: {bare:.0f} rollouts/s; "
            f"a row follows after {arguments.steps} steps",
            flush=True,
        )
        print("| store | runners | rollouts/s | of bare | " + " | ".join(f"{p} ms" for p in PARTS) + " | store MB |")
        print("|---|---|---|---|" + "---|" * (len(PARTS) + 1), flush=True)
        for store in arguments.stores:
            for runners in arguments.runners:
                with tempfile.TemporaryDirectory() as run_folder:
                    seen = measured(store, runners, Path(run_folder), policies, arguments)
                costs = " | ".join(f"{1000 * seen.cost[part]:.1f}" for part in PARTS)
                first, last = seen.memory_mb
                print(
                    f"| {store} | {runners} | {seen.rate:.0f} | {seen.rate / bare:.2f} | {costs} | "
                    f"{first:.0f} → {last:.0f} |",
                    flush=True,
                )


@contextmanager
def served_policies(arguments: argparse.Namespace) -> Iterator[list[subprocess.Popen[str]]]:
    """Serve the scripted policy in processes inside the context; each prints its address when it serves."""
    command = [sys.executable, "-m", "tests.support.fake_verl", "--serve", arguments.model]
    environment = os.environ | {"FAKE_LATENCY_S": str(arguments.latency)}
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for _ in range(arguments.policies)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


async def bare_rate(arguments: argparse.Namespace) -> float:
    """Return how many rollouts a second the policy's processes answer when nothing but their two calls is made."""
    asked = [{"role": "user", "content": "train 1: in which form does Drug 1 come?"}]
    answered = [*asked, {"role": "assistant", "content": CALL}, {"role": "user", "content": "<tool_response>\n1"}]

    async def rollout(session: aiohttp.ClientSession, number: int) -> None:
        address = arguments.addresses[number % len(arguments.addresses)]
        for messages in (asked, answered):
            body = {"model": "policy", "messages": messages, "return_token_ids": True}
            async with session.post(f"{address}/chat/completions", json=body) as response:
                response.raise_for_status()
                await response.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        rates: list[float] = []
        for _ in range(3):
            started = time.monotonic()
            await asyncio.gather(*(rollout(session, number) for number in range(arguments.rollouts)))
            rates.append(float(arguments.rollouts) / (time.monotonic() - started))
    return max(rates)


def measured(
    store: str, runners: int, folder: Path, policies: list[subprocess.Popen[str]], arguments: argparse.Namespace
) -> Measured:
    """Train with a `store` of one kind and `runners` runners, and return what was seen after the first steps."""
    with ExitStack() as stack:
        server, address = (None, "") if store == "own" else stack.enter_context(served_store(program=store))
        process = start(runners, folder, address, arguments)
        metrics = folder / "runs" / "bench" / "metrics.jsonl"
        holder = psutil.Process(server.pid if server else process.pid)
        others = {"policy": [psutil.Process(p.pid) for p in policies], "store": [holder] if server else []}
        try:
            wait_for_steps(metrics, FIRST, process)
            before, first_mb = processor_seconds(process.pid, others), holder.memory_info().rss / 1e6
            wait_for_steps(metrics, arguments.steps, process)
            after, last_mb = processor_seconds(process.pid, others), holder.memory_info().rss / 1e6
        finally:
            process.terminate()
            process.wait()
    rollouts = arguments.rollouts * (arguments.steps - FIRST)
    steps = [json.loads(line) for line in metrics.read_text().splitlines()][FIRST:]
    rate = arguments.rollouts / statistics.median(step["timing/rollout_s"] for step in steps)
    return Measured(rate, {part: (after[part] - before[part]) / rollouts for part in PARTS}, (first_mb, last_mb))


def start(runners: int, folder: Path, store: str, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start a training run with the replacement for verl, with more steps than are measured."""
    make_database(folder / "medical.db")
    for name in ("train", "val"):
        questions = [
            Question(id=f"{name}{i}", question=f"{name} {i}: in which form does Drug 1 come?", answer="capsule")
            for i in range(arguments.rollouts // GROUP)
        ]
        (folder / f"{name}.jsonl").write_text("".join(q.model_dump_json() + "\n" for q in questions))
    command: list[Any] = [
        sys.executable, ROOT / "tests" / "support" / "train_with_fake_verl.py",
        "--backend=verl", f"--model={arguments.model}",
        f"--train-file={folder / 'train.jsonl'}", f"--val-file={folder / 'val.jsonl'}",
        f"database.path={folder / 'medical.db'}", f"runs_dir={folder / 'runs'}", "run_name=bench", "sft.steps=0",
        f"runner.n_runners={runners}", f"runner.n_proxies={arguments.proxies}", "verl.gpu_memory_gb=80",
        f"runner.concurrency={arguments.concurrency}",
        f"train.group_size={GROUP}", f"train.questions_per_step={arguments.rollouts // GROUP}",
        f"train.steps={arguments.steps + 5}", "train.save_every=1000", "data.val_questions=1",
        "data.natural_questions=0", *([f"--external-store-address={store}"] if store else []),
    ]  # fmt: skip
    environment = os.environ | {"FAKE_POLICIES": " ".join(arguments.addresses)}
    output = (folder / "output.txt").open("wb")
    return subprocess.Popen([str(part) for part in command], env=environment, stdout=output, stderr=output)


def wait_for_steps(metrics: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until `metrics` has `steps` lines; exit with the run's output when `process` ends before."""
    while not metrics.exists() or len(metrics.read_text().splitlines()) < steps:
        if process.poll() is not None:
            sys.exit(f"error: the run ended: {(metrics.parents[2] / 'output.txt').read_text()[-2000:]}")
        time.sleep(0.05)


def processor_seconds(main_process: int, others: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """Return the processor time of each part until now, in seconds; `others` are processes outside of the run."""
    root = psutil.Process(main_process)
    spent: dict[str, float] = defaultdict(float)
    parts = [(part_of(process, root), process) for process in (root, *root.children(recursive=True))]
    parts += [(part, process) for part, processes in others.items() for process in processes]
    for part, process in parts:
        times = process.cpu_times()
        spent[part] += times.user + times.system
    return spent


def part_of(process: psutil.Process, root: psutil.Process) -> str:
    """Return the part of the run that `process` is.

    Runners and proxies are forks of one process; a proxy is recognised by the file of its output.
    """
    if process == root:
        return "algorithm"
    if any("fake_verl" in word and "train_with" not in word for word in process.cmdline()):
        return "trainer"
    output = Path(f"/proc/{process.pid}/fd/1").readlink()
    return "proxies" if output.name.startswith("proxy-") else "runners"


if __name__ == "__main__":
    main()
