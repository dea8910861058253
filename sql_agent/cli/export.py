"""Turn a checkpoint of a run into a Hugging Face folder for transformers and vLLM,
with the system prompt (prompt.txt), the tool's schema (tool.json) and a model
card (README.md: provenance, evaluation, licence of the base, how to serve it).
The shards of a checkpoint of the backend verl are merged, which needs verl but
no GPU; a checkpoint of the backend local is copied."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sql_agent.cli.command import new_parser
from sql_agent.config.settings_schema import AgentSettings
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.evaluation.tables import markdown_table
from sql_agent.runs.charts import result_table, stages
from sql_agent.runs.checkpoints import checkpoints_by_step, verify_checkpoint
from sql_agent.runs.pages import render_template
from sql_agent.runs.run_folder import (
    PROMPT,
    TOOL,
    VALIDATION,
    agent_of_run,
    is_run,
    model_of,
    read_config,
    read_sessions,
    run_lines,
)
from sql_agent.system.files import atomic_folder, copy_folder
from sql_agent.tasks.task import disclaimer_of
from sql_agent.training.serving.tool_format import tool_format_of
from sql_agent.training.verl.config import verl_environment

_LICENCE = re.compile(r"^license:\s*(\S+)", re.MULTILINE)

_EXAMPLES = """
  sql-agent export runs/overnight trained              the latest checkpoint
  sql-agent export runs/overnight trained --step 20
  sql-agent ask --run runs/overnight --model trained   before and after training
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("export", __doc__, _EXAMPLES)
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="folder of the run, such as runs/overnight")
    add("out", type=Path, metavar="OUT", help="folder to write, which must not exist")
    add("--step", type=int, metavar="N", help="step of the checkpoint (default: the latest)")
    arguments = parser.parse_args(argv)
    if arguments.out.exists():
        raise ConfigError(f"{arguments.out} exists already", hint="name a folder that does not exist")
    run, out = arguments.run, arguments.out
    checkpoint = checkpoint_folder(run, arguments.step)
    export_checkpoint(checkpoint, out, lambda weights: _write_card(run, checkpoint, weights, out))
    print(f"{out}: a Hugging Face folder. To ask this model:")
    print(f"  sql-agent ask --run {run} --model {out}")
    print(f"How to serve this model: {out / 'README.md'}")
    return 0


def export_checkpoint(checkpoint: Path, out: Path, complete: Callable[[Path], None] = lambda _weights: None) -> None:
    """Write the model of `checkpoint`, from the backend local or verl, into the new Hugging Face folder `out`.

    `complete` adds files to the unfinished folder, which is renamed to `out` at the end. Raises TrainingError if verl
    cannot merge the shards, and DataError if a file of a local checkpoint is damaged.
    """
    is_local = (checkpoint / "model").is_dir()
    if is_local:
        verify_checkpoint(checkpoint, model_only=True)
    with atomic_folder(out) as unfinished:
        if is_local:
            copy_folder(checkpoint / "model", unfinished)
        else:
            _merge_shards(checkpoint / "actor", unfinished)
        complete(unfinished)


def _merge_shards(shards: Path, out: Path) -> None:
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(shards), "--target_dir", str(out)]
    # verl's environment registers our attention, which the checkpoint names. With the variable, torch loads only
    # tensors; verl would load any pickle, even one that runs code.
    environment = os.environ | verl_environment() | {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    if result.returncode:
        last = (result.stderr.strip() or "no message").splitlines()[-1]
        raise TrainingError(
            f"verl could not merge {shards}: {last}",
            hint="install verl with `uv sync --extra gpu`; if it is installed, export another step",
        )
    from sql_agent.training.policy.model import complete_model_folder  # noqa: PLC0415  slow to import

    run = next((folder for folder in shards.parents if is_run(folder)), None)
    complete_model_folder(out, agent_of_run(run) if run else AgentSettings())


def checkpoint_folder(run: Path, step: int | None) -> Path:
    """Return the folder of the checkpoint of `step` in `run`; by default, of the latest step."""
    if not run.is_dir():
        raise ConfigError(f"there is no run at {run}", hint="name a folder under runs/, such as runs/overnight")
    found = checkpoints_by_step(run)
    if not found:
        raise ConfigError(
            f"{run} has no checkpoint", hint="the run ended before its first save; resume it or start it again"
        )
    if step is not None and step not in found:
        raise ConfigError(
            f"{run} has no checkpoint of step {step}",
            hint=f"give a step that has one: {', '.join(map(str, sorted(found)))}",
        )
    return found[max(found) if step is None else step]


def _write_card(run: Path, checkpoint: Path, weights: Path, out: Path) -> None:
    """Write README.md into the folder `weights`, later renamed to `out`, and copy prompt.txt and tool.json there."""
    if not is_run(run):
        return
    for name in (PROMPT, TOOL):
        if (run / name).exists():
            shutil.copyfile(run / name, weights / name)
    config, sessions = read_config(run), read_sessions(run)
    base_id, licence = _base(config["model"])
    result = result_table(stages(list(run_lines(run / VALIDATION)), sft_steps=config["sft"]["steps"]))
    card = render_template(
        "model_card.md.j2",
        model=out.name,
        run=run.name,
        checkpoint=checkpoint.name,
        base=model_of(config),
        base_id=base_id,
        licence=licence,
        config=config,
        disclaimer=disclaimer_of(config["task"]),
        parser=tool_format_of(str(weights), agent_of_run(run)),
        result=result,
        table=markdown_table(result),
        session=sessions[-1] if sessions else None,
    )
    (weights / "README.md").write_text(card, "utf-8")


def _base(model: str) -> tuple[str, str]:
    """Return the hub id and the licence of the base `model`; each is "" if unknown."""
    if not model:
        return "HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  slow

    folder = Path(model)
    found = folder / "README.md" if folder.is_dir() else try_to_load_from_cache(model, "README.md")
    card = Path(found) if isinstance(found, str | Path) else None
    named = _LICENCE.search(card.read_text("utf-8")) if card is not None and card.is_file() else None
    return "" if folder.is_dir() else model, named[1] if named else ""
