"""Read JSON files that a power cut or a full disk may have damaged; the error names the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError


def read_object(path: Path, *, hint: str) -> dict[str, Any]:
    """Return the JSON object that the file `path` holds. Raises DataError with `hint` when it holds none."""
    return _parsed(path.read_bytes(), path, 1, hint)


def parse_line(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return the JSON object in `line`, which has the `number` in the JSONL file `path`.

    Raises DataError as `damaged_line` makes it when there is none.
    """
    return _parsed(line, path, number, _without(path, number))


def damaged_line(path: Path, number: int, problem: str) -> DataError:
    """Return the error for the line with the `number` in the JSONL file `path`, with what to do about it."""
    return DataError(f"{path} is damaged: line {number}: {problem}", hint=_without(path, number))


def _without(path: Path, number: int) -> str:
    return f"remove that line, for example by sed -i '{number}d' {path}"


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
