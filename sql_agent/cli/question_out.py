"""Check the file of questions that a command is to write."""

from __future__ import annotations

from pathlib import Path

from sql_agent.errors import ConfigError


def check_out(out: Path, source: Path, *endings: str) -> None:
    """Raise ConfigError when `out` has none of `endings`, or is the file that is read."""
    known = " or ".join(endings)
    if out.suffix not in endings:
        raise ConfigError(f"--out {out} is no {known} file", hint=f"let it end in {known}")
    if out.resolve() == source.resolve():
        raise ConfigError(f"--out {out} is the file that is read", hint="name another")
