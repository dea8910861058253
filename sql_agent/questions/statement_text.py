"""Find the SQL statement in what a model wrote."""

from __future__ import annotations

import re

_FENCED = re.compile(r"```[ \t]*(?:sqlite|sql)?[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_START = re.compile(r"^[ \t]*(?:SELECT|WITH)\b.*", re.DOTALL | re.MULTILINE | re.IGNORECASE)


def statement_in(text: str) -> str:
    """Return the last statement in a code fence, else what follows the first line that starts with SELECT or WITH.

    A fence that is not closed, because the reply was cut off, holds one too. Without either all of `text` is returned.
    Final semicolons are left out.
    """
    fenced = [body for body in _FENCED.findall(text) if body.strip()]
    found = fenced[-1] if fenced else text
    if not fenced and (started := _START.search(text)):
        found = started[0]
    return found.strip().rstrip(";").strip()
