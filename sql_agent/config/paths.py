"""Define the folders of caches and runs, and the paths of the `.env` files."""

from __future__ import annotations

from pathlib import Path

from sql_agent.errors import ConfigError

CHECKOUT = Path(__file__).resolve().parents[2]


def _project() -> Path:
    """Return the folder of the git checkout, or "." if that is the working directory or there is no checkout."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder was removed", hint="cd to a folder that exists") from None
    if not (CHECKOUT / "pyproject.toml").exists() or here == CHECKOUT:
        return Path()
    return CHECKOUT


PROJECT = _project()
VAR = PROJECT / "var"
RUNS = PROJECT / "runs"
ENV_FILES = (PROJECT / ".env", Path(".env"))
