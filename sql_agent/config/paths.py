"""Define the folders in which the project keeps what it makes, whichever folder a command is started from."""

from __future__ import annotations

from pathlib import Path

from sql_agent.errors import ConfigError


def _project() -> Path:
    """Return the checkout that holds this file; "." when that is the working directory or there is none."""
    checkout = Path(__file__).resolve().parents[2]
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder was removed", hint="cd to a folder that is there") from None
    if not (checkout / "pyproject.toml").exists() or checkout == here:
        return Path()
    return checkout


PROJECT = _project()
VAR = PROJECT / "var"
RUNS = PROJECT / "runs"
ENV_FILES = (PROJECT / ".env", Path(".env"))
