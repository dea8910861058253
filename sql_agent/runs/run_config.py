"""Read the settings that a run was started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sql_agent.system.json_files import read_object


def read_config(run: Path) -> dict[str, Any]:
    """Return what `config.json` in the folder `run` holds, which exists. Raises DataError when it is damaged."""
    return read_object(
        run / "config.json", hint="put a copy of that file back, or start a new run under another run_name"
    )
