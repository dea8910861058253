"""Put the page of a conversation together: its own markup, style and script, and those that the report has."""

from __future__ import annotations

import json
from importlib.resources import files

from jinja2 import Environment, PackageLoader

from sql_agent.runs.page import asset, dictionary

_FOLDER = files("sql_agent.chat") / "templates"


def render_page(disclaimer: str) -> str:
    """Return the HTML of the page, which asks its server for all but the `disclaimer`."""
    environment = Environment(loader=PackageLoader("sql_agent.chat"), autoescape=True)
    return environment.get_template("chat.html.j2").render(
        disclaimer=disclaimer,
        styles=[asset("page.css"), _own("chat.css")],
        scripts=[asset("text.js"), asset("rollout.js"), _own("reply.js"), _own("chat.js")],
        chinese=dictionary(json.loads(_own("zh.json"))),
    )


def _own(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
