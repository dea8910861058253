"""Read the settings that a run was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sql_agent.config.settings import Settings, Source, flatten, merge, read_sources
from sql_agent.errors import DataError
from sql_agent.system.files import read_object

_OF_RUNS = {"task", "runs_dir"}  # in the config.json of every run


def settings_of_run(run: Path, overrides: Sequence[str], flags: Mapping[str, Any]) -> Settings:
    """Return the settings that `run` was started with, overridden by the command line, except for the flag `model`.

    Raises DataError when the folder `run` has no config.json of a run or a damaged one, and ConfigError for a setting
    that does not exist any more or that would run code which the command line does not name too.
    """
    if not (run / "config.json").is_file() or not (saved := run_source(run)).values.keys() >= _OF_RUNS:
        raise DataError(f"there is no run in {run}", hint="name a folder under runs/, such as runs/quickstart")
    *weaker, command_line = read_sources(overrides, flags={k: v for k, v in flags.items() if k != "model"})
    return merge([*weaker, saved, command_line])


def run_source(run: Path) -> Source:
    """Return the settings in the config.json of the folder `run`. Raises DataError when that file is damaged."""
    return Source(
        str(run / "config.json"),
        flatten(read_config(run)),
        hint="another version of this program wrote the file: use the version that run.json beside it names, or "
        "remove the setting from the file",
        trusted=False,
    )


def is_run(folder: Path) -> bool:
    """Decide whether `folder` is that of a run. A model folder has a config.json too, but without a task."""
    try:
        return (folder / "config.json").is_file() and read_config(folder).keys() >= _OF_RUNS
    except DataError:
        return False


def read_config(run: Path) -> dict[str, Any]:
    """Return the content of `config.json` in the folder `run`. Raises DataError when that file is damaged."""
    return read_object(
        run / "config.json", hint="put a copy of that file back, or start a new run under another run_name"
    )
