"""Turn a verl checkpoint into a Hugging Face folder: sql-agent export RUN OUT [--step N]"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sql_agent.backends.verl.config import verl_environment
from sql_agent.cli.parser import help_text
from sql_agent.errors import ConfigError, TrainingError

_DESCRIPTION = """\
Turn a checkpoint of the verl backend into a Hugging Face folder, which
transformers and vLLM load. Needs verl installed, but no GPU. The local backend
writes such folders already, as runs/NAME/checkpoints/step-*/model."""

_EXAMPLES = """
  sql-agent export runs/overnight trained              the latest checkpoint
  sql-agent export runs/overnight trained --step 20
  sql-agent ask --run runs/overnight --model trained   before and after training
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Merge the shards of a checkpoint into the folder OUT and return 0; needs verl, but no GPU."""
    parser = argparse.ArgumentParser(prog="sql-agent export", **help_text(_DESCRIPTION, _EXAMPLES))
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder, such as runs/overnight")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that does not exist yet")
    parser.add_argument("--step", type=int, metavar="N", help="default: the latest checkpoint")
    arguments = parser.parse_args(argv)
    if arguments.out.exists():
        raise ConfigError(f"{arguments.out} exists already", hint="name a new folder")
    export_checkpoint(checkpoint_folder(arguments.run, arguments.step), arguments.out)
    print(f"{arguments.out}: a Hugging Face folder. See it answer:")
    print(f"  sql-agent ask --run {arguments.run} --model {arguments.out}")
    return 0


def export_checkpoint(checkpoint: Path, out: Path) -> None:
    """Merge the shards of a verl checkpoint into the new Hugging Face folder `out`.

    Raises TrainingError when that fails.
    """
    shards = checkpoint / "actor"
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of an export that was cut off
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(shards), "--target_dir", str(partial)]
    # In verl's environment, because the checkpoint names our attention, which is registered there.
    result = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=os.environ | verl_environment()
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise TrainingError(
            f"verl could not merge {shards}: {last}", hint="is verl installed here? `uv sync --extra gpu`"
        )
    from sql_agent.backends.verl.export import complete_model_folder  # noqa: PLC0415  slow to import

    complete_model_folder(partial)
    partial.rename(out)


def checkpoint_folder(run: Path, step: int | None) -> Path:
    """Return the folder of a checkpoint of `run`, the latest for `step` None. Raises ConfigError when there is none."""
    if not run.is_dir():
        raise ConfigError(f"there is no run at {run}", hint="name a folder under runs/, such as runs/overnight")
    found = {int(path.name.rpartition("_")[2]): path for path in (run / "checkpoints").glob("global_step_*")}
    if not found:
        raise ConfigError(
            f"{run} has no checkpoint of the verl backend",
            hint="the local backend writes Hugging Face folders already, under checkpoints/step-*/model",
        )
    if step is not None and step not in found:
        raise ConfigError(
            f"{run} has no checkpoint of step {step}",
            hint=f"its checkpoints are of the steps {', '.join(map(str, sorted(found)))}",
        )
    return found[max(found) if step is None else step]
