"""Kill parts of a run at random and count its rollouts: python benchmarks/faults.py --model FOLDER

No GPU is needed: it runs the verl backend with the tests' replacement for verl, so that the policy is a script and
everything else is real. Every `--every` seconds a runner, a proxy or a database worker, chosen at random, is killed
with SIGKILL. It prints how many of each were killed, how many rollouts were requested, tried, lost and kept, the memory
of the main process after the first and after the last step, and the seconds until a death was reported. The exit code
is 0 when every requested rollout was kept and every try is accounted for.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sql_agent.schemas import Question  # noqa: E402
from tests.support.processes import lines, runners_and_proxies, start_new  # noqa: E402
from tests.support.small_database import make_database  # noqa: E402

_GROUP = 8


@dataclass
class Figures:
    """What was seen of one run."""

    exit_code: int = -1
    output: str = ""
    seconds: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)
    requested: int = 0
    tried: int = 0
    lost: int = 0
    kept: int = 0
    memory_mb: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)  # from a kill of a runner or proxy to the line about it

    @property
    def accounted_for(self) -> bool:
        """Return whether the run ended well with every requested rollout, and every try was kept or reported lost."""
        return self.exit_code == 0 and self.kept == self.requested and self.tried == self.kept + self.lost


def main() -> int:
    """Run and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face folder; only its tokenizer is used")
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--per-step", type=int, default=40)
    parser.add_argument("--runners", type=int, default=3)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two kills")
    parser.add_argument("--latency", type=float, default=0.3, help="seconds until the policy answers")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = run_with_kills(Path(folder), **vars(arguments))
    killed = ", ".join(f"{count} {kind}s" for kind, count in sorted(figures.killed.items()))
    delays = figures.delays_s or [0.0]
    print(f"killed in {figures.seconds:.0f} s: {killed}")
    print(f"requested {figures.requested}, tried {figures.tried}, lost {figures.lost}, kept {figures.kept}")
    print(f"memory of the main process: {figures.memory_mb[0]:.0f} MB first, {figures.memory_mb[-1]:.0f} MB last")
    print(f"reported after {sum(delays) / len(delays):.2f} s on average, {max(delays):.2f} s at most")
    if not figures.accounted_for:
        print(figures.output[-3000:])
    return 0 if figures.accounted_for else 1


def run_with_kills(
    folder: Path, *, model: Path, rollouts: int, per_step: int, runners: int, every: float, latency: float, seed: int
) -> Figures:
    """Train in `folder` with at least `rollouts` rollouts, kill a part every `every` seconds; return the figures."""
    steps = -(-rollouts // per_step)
    figures = Figures(requested=steps * per_step)
    process = start_new(
        arguments_in(folder, model, steps, per_step, runners),
        script=ROOT / "tests" / "support" / "train_with_fake_verl.py",
        FAKE_LATENCY_S=str(latency),
    )
    deaths: dict[int, float] = {}  # process id by the time of its kill
    reader = threading.Thread(target=read_output, args=(process, figures, deaths), daemon=True)
    reader.start()
    started, metrics, choose = time.monotonic(), folder / "runs" / "r" / "metrics.jsonl", random.Random(seed)
    while process.poll() is None:
        if len(lines(metrics)) < 1:
            time.sleep(0.1)
            continue
        figures.memory_mb.append(psutil.Process(process.pid).memory_info().rss / 1e6)
        kill_one(process, choose, figures.killed, deaths)
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on
            process.wait(timeout=every)
    reader.join()
    figures.seconds, figures.exit_code = time.monotonic() - started, process.returncode
    tries = [rollout for rollout in lines(folder / "runs" / "r" / "rollouts.jsonl") if rollout["mode"] == "train"]
    figures.lost = sum(rollout["dropped"] is not None for rollout in tries)
    figures.kept = len(tries) - figures.lost
    figures.tried = int(sum(step["rollouts/enqueued"] for step in lines(metrics)))
    return figures


def arguments_in(folder: Path, model: Path, steps: int, per_step: int, runners: int) -> list[str]:
    """Write the files of a run and return its arguments."""
    make_database(folder / "medical.db")
    for name in ("train", "val"):
        questions = [
            Question(id=f"{name}{i}", question=f"{name} {i}: in which form does Drug 1 come?", answer="capsule")
            for i in range(per_step)
        ]
        (folder / f"{name}.jsonl").write_text("".join(q.model_dump_json() + "\n" for q in questions), encoding="utf-8")
    return [
        "--backend=verl", f"--model={model}", f"--n-runners={runners}", "runner.n_proxies=2",
        f"--train-file={folder / 'train.jsonl'}", f"--val-file={folder / 'val.jsonl'}",
        f"database.path={folder / 'medical.db'}", f"runs_dir={folder / 'runs'}", "run_name=r", "sft.steps=0",
        "verl.gpu_memory_gb=80", "verl.config.sql_agent.endpoints=1", f"train.group_size={_GROUP}",
        f"train.steps={steps}", f"train.questions_per_step={per_step // _GROUP}", "train.save_every=1",
        "data.val_questions=1",
        "data.natural_questions=0",
    ]  # fmt: skip


def kill_one(
    process: subprocess.Popen[str], choose: random.Random, killed: Counter[str], deaths: dict[int, float]
) -> None:
    """Kill a runner, a proxy or a database worker of the run, if there is one to be found."""
    try:
        runners, proxies = runners_and_proxies(process)
        workers = [child for runner in runners for child in runner.children(recursive=True) if not child.children()]
        kinds: dict[str, list[psutil.Process]] = {"runner": runners, "proxy": proxies, "database worker": workers}
        kind = choose.choice([kind for kind, found in kinds.items() if found] or ["runner"])
        victim = choose.choice(kinds[kind])
        deaths[victim.pid] = time.monotonic()
        victim.kill()
        killed[kind] += 1
    except (psutil.NoSuchProcess, FileNotFoundError, IndexError):
        pass  # it has just ended by itself


def read_output(process: subprocess.Popen[str], figures: Figures, deaths: dict[int, float]) -> None:
    """Collect the output of the run, and the delay of each line about a process that was killed."""
    on_line: Callable[[], str] = process.stdout.readline if process.stdout else str
    for line in iter(on_line, ""):
        figures.output += line
        for pid in [pid for pid in deaths if f"(process {pid})" in line]:
            figures.delays_s.append(time.monotonic() - deaths.pop(pid))
    if process.stdout:
        process.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
