"""Define the folders in which the project keeps what it makes, whichever folder a command is started from."""

from __future__ import annotations

from pathlib import Path


def _project() -> Path:
    """Return the checkout that holds this file; "." when that is the working directory or there is none."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").exists() or checkout == Path.cwd():
        return Path()
    return checkout


PROJECT = _project()
VAR = PROJECT / "var"
RUNS = PROJECT / "runs"
ENV_FILES = (PROJECT / ".env", Path(".env"))
