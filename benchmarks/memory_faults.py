"""Let the memory run out in a part of a run: python benchmarks/memory_faults.py --model FOLDER [NAME …]

Each fault is done to a run of its own of the local backend, which takes seconds with a tiny model. A part is killed
with SIGKILL, as the kernel does with the largest process when memory runs out, or gets no more memory: a limit of what
it had (RLIMIT_AS). Printed for each: the lines of the run about it with the seconds until each, and how the run ended.
The exit code is 0 when each was said within 5 s without a traceback, every run ended as it should and left nothing.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from single_faults import Fault, Run, end, is_wanted

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.processes import SCRIPT, runners_and_proxies, start_new  # noqa: E402
from tests.support.tiny_training import tiny_training  # noqa: E402

_STEPS = 12
_ROOM = 2 << 20  # bytes that a process may still take; with none at all Python cannot even end
Choose = Callable[[Run], psutil.Process]


def trainer_of(run: Run) -> psutil.Process:
    return psutil.Process(run.process.pid)


def runner_of(run: Run) -> psutil.Process:
    return runners_and_proxies(run.process)[0][0]


def proxy_of(run: Run) -> psutil.Process:
    return runners_and_proxies(run.process)[1][0]


def worker_of(run: Run) -> psutil.Process:
    run.wait_for_steps(2)
    return next(child for child in runner_of(run).children(recursive=True) if not child.children())


def kill(choose: Choose) -> Callable[[Run], None]:
    """Return an act that ends a process as the kernel does when memory runs out."""

    def act(run: Run) -> None:
        run.wait_for_steps(2)
        victim = choose(run)
        run.done_at = time.monotonic()
        victim.send_signal(signal.SIGKILL)

    return act


def limit(choose: Choose) -> Callable[[Run], None]:
    """Return an act that lets a process have no more memory from when training begins."""

    def act(run: Run) -> None:
        victim = choose(run)
        most = victim.memory_info().vms + _ROOM
        run.done_at = time.monotonic()
        resource.prlimit(victim.pid, resource.RLIMIT_AS, (most, most))

    return act


FAULTS = [
    Fault("trainer killed", kill(trainer_of), "killed", code=-signal.SIGKILL),
    Fault("trainer without memory", limit(trainer_of), "memory", code=2),
    Fault("runner killed", kill(runner_of), "Runner 0"),
    Fault("runner without memory", limit(runner_of), "Runner 0"),
    Fault("proxy killed", kill(proxy_of), "LLM proxy 0"),
    Fault("proxy without memory", limit(proxy_of), ""),
    Fault("database worker killed", kill(worker_of), ""),
    Fault("database worker without memory", limit(worker_of), ""),
]


def try_fault(fault: Fault, model: Path, folder: Path) -> bool:
    """Do what `fault` says to a run of its own, and return whether it was said and the run ended as it should."""
    arguments = [*tiny_training(folder, model), f"train.steps={_STEPS}", "data.natural_questions=0"]
    run = Run(folder, start_new(arguments, script=SCRIPT))
    threading.Thread(target=run.read, daemon=True).start()
    run.wait_for_line("Preflight", timeout=120)
    run.family = psutil.Process(run.process.pid).children(recursive=True)
    fault.act(run)
    good = end(run, fault)
    tracebacks = run.said("Traceback")
    if tracebacks:
        run.show_output()
    return good and not tracebacks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face folder of a tiny model")
    parser.add_argument("names", nargs="*", metavar="NAME", help="words in the names of the faults (default: all)")
    arguments = parser.parse_args()
    fine = True
    for fault in [fault for fault in FAULTS if is_wanted(fault, arguments.names)]:
        with tempfile.TemporaryDirectory() as folder:
            fine &= try_fault(fault, arguments.model.resolve(), Path(folder))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
