"""Read JSON files that a power cut or a full disk may have damaged; the error names the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError


def read_object(path: Path, *, hint: str) -> dict[str, Any]:
    """Return the JSON object that the file `path` holds. Raises DataError with `hint` when it holds none."""
    return _parsed(path.read_bytes(), path, 1, hint)


def object_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file, none if it is missing, without a last line that has no end.

    A process was killed while it wrote such a line. Raises DataError that names another line that is no JSON object.
    """
    if not path.exists():
        return
    with path.open("rb") as source:
        for number, line in enumerate(source, 1):
            if line.endswith(b"\n"):
                yield parse_line(line, path, number)


def parse_line(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return the JSON object in `line`, which has the `number` in the JSONL file `path`; raises DataError as above."""
    return _parsed(line, path, number, f"remove that line, for example by sed -i '{number}d' {path}")


def _parsed(content: bytes, path: Path, number: int, hint: str) -> dict[str, Any]:
    """Parse `content`, whose first line has the `number` in `path`."""
    if not content.strip():
        problem = "nothing is there"
    else:
        try:
            value = json.loads(content.decode("utf-8"))
            if isinstance(value, dict):
                return value
            problem = "not a JSON object"
        except UnicodeDecodeError as error:
            number += content.count(b"\n", 0, error.start)
            problem = "not text in UTF-8"
        except json.JSONDecodeError as error:
            number += error.lineno - 1
            problem = f"not JSON: {error.msg}"
    raise DataError(f"{path} is damaged: line {number}: {problem}", hint=hint)
