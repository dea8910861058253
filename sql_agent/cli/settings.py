"""List all settings with their defaults and meaning: sql-agent settings [SECTION]"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Print the settings."""
    raise NotImplementedError
