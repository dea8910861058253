"""The files in a run's folder, and how to read its settings.

| file | writer | readers |
| --- | --- | --- |
| config.json | `RunLog`: the settings, once at the start | `settings_of_run`, `settings_to_resume`, the report |
| run.json | `recorded_session`: start, versions, inputs, end | `read_sessions`: the report, `--resume` |
| metrics.jsonl | `RunLog.metrics`: one line a training step | `run_lines`: the report, the summary after training |
| validation.jsonl | `RunLog.validation`: one line a validation | the same |
| rollouts.jsonl | `RunLog.rollouts`: one line a rollout | the report, `largest_gain` for `ask --run` |
| sft.jsonl | supervised fine-tuning: one line a step, with its loss | the report |
| prompt.txt, tool.json | `RunLog.prompt`: the system prompt and the tool's schema | the report, `export` |
| checkpoints/ | the backend, with the folder names in `checkpoints.py` | `--resume`, `ask`, `evaluate`, `export` |
| tracking/ | trackers that write files | programs of the trackers |
| report.html, comparison.html | `write_report` | browsers |

`cut_to_checkpoint` removes the lines after the last checkpoint from metrics, validation and rollouts when a run is
resumed. A lock file `.NAME.lock` next to the folder excludes a second process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sql_agent.config.settings import Settings, Source, flatten, merge, read_sources
from sql_agent.errors import DataError
from sql_agent.system.files import read_object

CONFIG, INFO = "config.json", "run.json"
METRICS, VALIDATION, ROLLOUTS, SFT = "metrics.jsonl", "validation.jsonl", "rollouts.jsonl", "sft.jsonl"
UNTRAINED = -1  # the step of a validation before supervised fine-tuning; 0 is before GRPO
PROMPT, TOOL = "prompt.txt", "tool.json"

_RUN_KEYS = {"task", "runs_dir"}  # in the config.json of a run, not in that of a model


def settings_of_run(run: Path, overrides: Sequence[str], flags: Mapping[str, Any]) -> Settings:
    """Return the settings of `run`, overridden by the command line: `overrides`, and `flags` except `model`.

    Raises DataError when `run` is not a run's folder or its config.json is damaged, and ConfigError for a setting that
    no longer exists or that names code which the command line does not name.
    """
    *weaker, command_line = read_sources(overrides, flags={k: v for k, v in flags.items() if k != "model"})
    return merge([*weaker, run_source(run), command_line])


def run_source(run: Path) -> Source:
    """Return the settings in the config.json of `run`. Raises DataError as `read_config` does."""
    return Source(
        str(run / CONFIG),
        flatten(read_config(run)),
        hint="another version of this program wrote the file: use the version in run.json, or remove the "
        "setting from the file",
        trusted=False,
    )


def model_of(config: Mapping[str, Any]) -> str:
    """Return the name of the model in the settings `config`."""
    return config.get("model") or "embedded SmolLM2-135M-Instruct"


def is_run(folder: Path) -> bool:
    """Return whether `folder` contains a run."""
    try:
        read_config(folder)
    except DataError:
        return False
    return True


def read_config(run: Path) -> dict[str, Any]:
    """Return the content of a run's config.json. Raises DataError when `run` contains no run, or a damaged file."""
    path = run / CONFIG
    if path.is_file():
        values = read_object(path, hint="restore the file from a copy, or start a new run under another run_name")
        if values.keys() >= _RUN_KEYS:
            return values
    raise DataError(f"there is no run in {run}", hint="name a folder under runs/, such as runs/quickstart")
