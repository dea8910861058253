"""Put a report into one HTML page that opens offline: markup, style, script and the compressed data."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader

from sql_agent.rollouts.metrics import ACCURATE
from sql_agent.runs.rollout_pack import compressed
from sql_agent.schemas import DropCause, Outcome

_SCRIPTS = ("text", "data", "chart", "filter", "list", "rollout", "related", "overview", "main")
_FOLDER = files("sql_agent.runs") / "templates"
# What the words of a record's outcome and of a drop's cause mean, for people.
MESSAGES = {word.value: word.message for word in (*Outcome, *DropCause)}


def render_page(page: Mapping[str, Any], blocks: Sequence[Sequence[bytes]], *, live: bool = False) -> str:
    """Return the HTML of a report.

    `page` is its data without the records: `title`, `disclaimer`, `tables`, and `runs` with name, facts, charts and the
    index of a RolloutPack. `blocks` are the packs' blocks, by run. A `live` page has no data and asks its server.
    """
    environment = Environment(loader=PackageLoader("sql_agent.runs"), autoescape=True)
    return environment.get_template("page.html.j2").render(
        title=page["title"],
        disclaimer=page["disclaimer"],
        live=live,
        style=asset("page.css"),
        scripts=[asset(f"{name}.js") for name in _SCRIPTS],
        chinese=dictionary({}),
        data="" if live else _text(packed(page)),
        blocks=[] if live else [[_text(block) for block in of_run] for of_run in blocks],
    )


def packed(page: Mapping[str, Any]) -> bytes:
    """Return the data of a page as the script reads it, compressed with gzip."""
    return compressed(page_json(page))


def page_json(page: Mapping[str, Any]) -> str:
    """Return the data of a page as JSON, with what the script must know of scores and outcomes."""
    known = {"accurate": ACCURATE, "messages": MESSAGES}
    return json.dumps({**page, **known}, ensure_ascii=False, separators=(",", ":"), default=str)


def dictionary(more: Mapping[str, str]) -> str:
    """Return the Chinese texts of the pages, with `more`, as JSON that can stand inside HTML."""
    return json.dumps(json.loads(asset("zh.json")) | dict(more), ensure_ascii=False).replace("<", "\\u003c")


def asset(name: str) -> str:
    """Return a style or script that the pages share."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
