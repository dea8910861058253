"""Show that GRPO learns on two cores: python benchmarks/laptop_learning.py --seeds 0 1 2 [section.key=value ...]

It does `train_sql_agent.py --ci --backend local` for each seed and compares the validations before and after: the same
questions, greedy, of the splits `val` and `test`, about rows that training never sees, those of `test` in wordings that
it never sees either. It prints how many are accurate, how many became right and wrong, the chance of so uneven a split
if training changed nothing (McNemar's exact test), the seconds, and the most memory of one process, the trainer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sql_agent.config.settings import load_settings
from sql_agent.evaluation.statistics import mcnemar
from sql_agent.questions.question_files import load_questions, write_jsonl
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import RolloutRecord
from sql_agent.tasks.medical.medical_task import ensure_sample, sample_path
from sql_agent.training import local

TRAIN = Path(__file__).resolve().parents[1] / "sql_agent" / "train_sql_agent.py"
LAPTOP = Path(local.__file__).with_name("laptop.toml")
QUESTIONS = 500  # more than the file has: all of them
MADE = 400  # questions of the trained types in each split, if the sample has as many


@dataclass(frozen=True)
class Outcome:
    """How the validations of one run differ: shares in 0.0–1.0, numbers of questions, seconds, and GB."""

    seed: int
    questions: int
    before: float
    after: float
    gained: int
    lost: int
    p: float
    training_s: float
    total_s: float
    peak_gb: float


def main() -> None:
    """Run every seed and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cores", type=int, default=2, help="cores that a run may use (default: 2)")
    parser.add_argument("--out", type=Path, default=Path("runs/laptop-learning"))
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    arguments = parser.parse_intermixed_args()
    limit_to(arguments.cores)
    files = question_files(arguments.out, arguments.overrides)
    outcomes = []
    for seed in arguments.seeds:
        outcomes.append(trained(seed, arguments.out, files, arguments.overrides))
        (arguments.out / "result.json").write_text(json.dumps([asdict(o) for o in outcomes], indent=2))
    print(
        "| seed | questions | before | after | became right | became wrong | McNemar p | training | in all | memory |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for o in outcomes:
        print(
            f"| {o.seed} | {o.questions} | {o.before:.1%} | {o.after:.1%} | {o.gained} | {o.lost} | {o.p:.2g} "
            f"| {o.training_s:.0f} s | {o.total_s:.0f} s | {o.peak_gb:.1f} GB |"
        )


def limit_to(cores: int) -> None:
    """Let this process and those it starts use only the first `cores` of its cores, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def trained(seed: int, out: Path, files: tuple[Path, Path], overrides: Sequence[str]) -> Outcome:
    """Train with `seed` as run `seed-SEED` under `out` on the `files` of `question_files`; compare its validations."""
    fixed = [f"--config={LAPTOP}", "--backend=local", f"seed={seed}", f"runs_dir={out}", f"run_name=seed-{seed}"]
    train, val = files
    asked = [f"data.val_questions={QUESTIONS}", "data.natural_questions=0"]
    asked += [f"data.train_file={train}", f"data.val_file={val}"]
    started = time.monotonic()
    subprocess.run([sys.executable, str(TRAIN), *fixed, *asked, *overrides], check=True)
    total_s = time.monotonic() - started
    run = out / f"seed-{seed}"
    before, after = accurate_by_question(run)
    gained, lost = flips(before, after)
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return Outcome(
        seed=seed,
        questions=len(before.keys() & after.keys()),
        before=sum(before.values()) / len(before),
        after=sum(after.values()) / len(after),
        gained=gained,
        lost=lost,
        p=mcnemar(gained, lost),
        training_s=sum(step["timing/rollout_s"] + step["timing/update_s"] for step in steps),
        total_s=total_s,
        # The largest process of all that have ended, in KiB on Linux: later seeds only tell of a larger one.
        peak_gb=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9,
    )


def question_files(folder: Path, overrides: Sequence[str]) -> tuple[Path, Path]:
    """Make questions about the English sample in `folder`; return the file of training and that of held-out ones.

    The held-out questions are those of the trained types in the splits `val` and `test`.
    """
    ensure_sample(load_settings(["data.style=template"]), print)
    made, types = folder / "questions", load_settings(overrides, defaults=[LAPTOP]).data.task_types
    per_type = MADE // len(types)
    make = [sys.executable, "-m", "sql_agent", "data", "questions", "--style", "template", f"--per-type={per_type}"]
    subprocess.run([*make, "--db", str(sample_path("en")), "--out", str(made)], check=True, stdout=subprocess.DEVNULL)
    splits = [load_questions(made / f"{split}.parquet") for split in ("val", "test")]
    questions = [question for split in splits for question in split if question.task_type in types]
    write_jsonl(folder / "held-out.jsonl", ((question, {}) for question in questions))
    return made / "train.parquet", folder / "held-out.jsonl"


def accurate_by_question(run: Path) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return whether each question was answered accurately in the first and in the last validation, by its id."""
    steps: dict[int, dict[str, bool]] = {}
    for line in (run / "rollouts.jsonl").read_text(encoding="utf-8").splitlines():
        rollout = json.loads(line)
        if rollout["mode"] == "val" and rollout["dropped"] is None:
            record = RolloutRecord.model_validate(rollout["record"])
            steps.setdefault(rollout["step"], {})[record.question.id] = is_accurate(record)
    return steps[min(steps)], steps[max(steps)]


def flips(before: Mapping[str, bool], after: Mapping[str, bool]) -> tuple[int, int]:
    """Return how many questions of both validations became right, and how many became wrong."""
    both = before.keys() & after.keys()
    return sum(after[q] and not before[q] for q in both), sum(before[q] and not after[q] for q in both)


if __name__ == "__main__":
    main()
