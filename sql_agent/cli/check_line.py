"""Hold what one check of an installation found."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal


@dataclass(frozen=True)
class Check:
    """Holds one line of the output. `fix` says what to do when the verdict is not ok."""

    name: str
    found: str
    verdict: Literal["ok", "warn", "fail", "skip"]
    fix: str = ""


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_package(name: str, *, want: str, fix: str) -> Check:
    """Check a package whose version must start with `want`."""
    found = installed(name)
    return Check(name, found or "missing", "ok" if found and found.startswith(want) else "fail", fix)
