"""Write the files that users of exported weights need: the system prompt, the tool's schema and a model card."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sql_agent.evaluation.tables import markdown_table
from sql_agent.runs.charts import result_table, stages
from sql_agent.runs.pages import render_template
from sql_agent.runs.run_folder import PROMPT, TOOL, VALIDATION, is_run, model_of, read_config, settings_of_run
from sql_agent.runs.run_info import read_sessions
from sql_agent.runs.run_lines import run_lines
from sql_agent.tasks.task import load_task
from sql_agent.training.serving.template_check import tool_format_of

_LICENCE = re.compile(r"^license:\s*(\S+)", re.MULTILINE)
_EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"


def write_model_card(run: Path, checkpoint: Path, weights: Path, out: Path) -> None:
    """Write README.md into the folder `weights`, later renamed to `out`, and copy prompt.txt and tool.json of `run`.

    Files that the run does not have are left out: a run of an older version has no prompt.txt. Raises DataError for a
    damaged file of the run, and ModelError when the tokenizer cannot be loaded.
    """
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
        disclaimer=load_task(config["task"]).disclaimer,
        parser=tool_format_of(str(weights), settings_of_run(run, [], {}).agent),
        result=result,
        table=markdown_table(result),
        session=sessions[-1] if sessions else None,
    )
    (weights / "README.md").write_text(card, encoding="utf-8")


def _base(model: str) -> tuple[str, str]:
    """Return the hub id and the licence of the base `model`; each is "" if unknown."""
    if not model:
        return _EMBEDDED
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  slow

    folder = Path(model)
    found = folder / "README.md" if folder.is_dir() else try_to_load_from_cache(model, "README.md")
    card = Path(found) if isinstance(found, str | Path) else None
    named = _LICENCE.search(card.read_text(encoding="utf-8")) if card is not None and card.is_file() else None
    return "" if folder.is_dir() else model, named[1] if named else ""
