"""Grade many cases at once, and keep what was found in a folder."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sql_agent.errors import ConfigError, JudgeError
from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.schemas import Usage
from sql_agent.system.files import timestamped_folder

CONCURRENCY = 32  # gradings at once
RESULT_FILE = "evaluation.json"


async def grade_cases(
    judge: Judge, cases: Sequence[JudgeCase], on_done: Callable[[int], None] = lambda _: None
) -> list[Verdict | JudgeError]:
    """Grade every case, 32 at a time; returns verdicts in the order of `cases`.

    A case on which the judge raises JudgeError has that error in place of a verdict. `on_done` takes how many are done.
    """
    outcomes: list[Verdict | JudgeError | None] = [None] * len(cases)
    waiting = iter(enumerate(cases))
    done = 0

    async def work() -> None:
        nonlocal done
        for index, case in waiting:
            try:
                outcomes[index] = await judge.grade(case)
            except JudgeError as error:
                outcomes[index] = error
            done += 1
            on_done(done)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return [outcome for outcome in outcomes if outcome is not None]


def spent_on(outcome: Verdict | JudgeError) -> Usage:
    """Return what one grading cost, whether it gave a verdict or not."""
    return outcome.usage or Usage()


def new_folder(out: Path | None, runs_dir: Path, judge: str) -> Path:
    """Make and return the folder of this evaluation: `out`, or one in `runs_dir` named after judge and time.

    Raises ConfigError when it cannot be made or already holds an evaluation.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", judge).strip("-.") or "unnamed"
    try:
        folder = out or timestamped_folder(runs_dir, f"judge-{safe}-")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        where = out or runs_dir
        raise ConfigError(f"cannot make the folder {where}: {error.strerror}", hint="choose another --out") from None
    if (folder / RESULT_FILE).exists():
        raise ConfigError(f"{folder} already holds an evaluation", hint="choose another folder with --out")
    return folder
