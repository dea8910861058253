"""Put data into a prompt so that it stays data."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from importlib.resources import files

from sql_agent.schemas import Lang, QueryCall

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def render(template: str, values: Mapping[str, str]) -> str:
    """`template` with {fence}, {fence_end} and the placeholders of `values` replaced.

    One pass: a placeholder inside the data stays what it is, and an unknown one in the template too. The fences carry a
    fresh random number, so nothing that was written before can close one.
    """
    number = secrets.token_hex(8)
    known = {**values, "fence": f"<<<{number}", "fence_end": f"{number}>>>"}
    return _PLACEHOLDER.sub(lambda match: known.get(match.group(1), match.group(0)), template)


def prompt_text(name: str, lang: Lang) -> str:
    """The prompt file `name`.`lang`.txt of this package."""
    return files("sql_agent.reward.judges").joinpath("prompts", f"{name}.{lang}.txt").read_text(encoding="utf-8")


def rows_text(calls: tuple[QueryCall, ...], *, max_chars: int) -> str:
    """The rows of the successful queries as JSON, one query a line, cut after `max_chars`; "(none)" without any."""
    answers = [
        json.dumps({"columns": c.answer.columns, "records": c.answer.records}, ensure_ascii=False)
        for c in calls
        if c.answer.status == "ok"
    ]
    return "\n".join(answers)[:max_chars] or "(none)"
