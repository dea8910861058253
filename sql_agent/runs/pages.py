"""Render the HTML pages: scripts, styles and the offline report with its compressed data."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader

from sql_agent.rollouts.metrics import ACCURATE
from sql_agent.runs.rollout_pack import compressed
from sql_agent.schemas import DropCause, Outcome

_SCRIPTS = ("text", "access", "data", "chart", "filter", "list", "rollout", "related", "overview", "main")
_PACKAGE = "sql_agent.runs"
# What the words of a record's outcome and of a drop's cause mean, for people.
MESSAGES = {word.value: word.message for word in (*Outcome, *DropCause)}


def render_report(page: Mapping[str, Any], blocks: Sequence[Sequence[bytes]]) -> str:
    """Return the HTML of a report that works offline, with a content security policy in a meta tag.

    `page` is its data without the records: `title`, `disclaimer`, `tables`, and `runs` with name, facts, charts and the
    index of a RolloutPack. `blocks` are the packs' blocks, by run.
    """
    nonce = secrets.token_urlsafe(16)
    return _report(
        nonce=nonce,
        policy=content_policy(nonce),
        title=page["title"],
        disclaimer=page["disclaimer"],
        data=_base64(packed(page)),
        blocks=[[_base64(block) for block in of_run] for of_run in blocks],
    )


def render_live_report(disclaimer: str, nonce: str) -> str:
    """Return the HTML of a report that asks its server for all data; the HTML itself contains nothing of a run."""
    return _report(nonce=nonce, live=True, title="Run", disclaimer=disclaimer)


def content_policy(nonce: str) -> str:
    """Return a content security policy that runs only the scripts, and applies only the styles, with `nonce`."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def packed(page: Mapping[str, Any]) -> bytes:
    """Return the data of a page as JSON compressed with gzip, with the constants that its scripts need."""
    known = {"accurate": ACCURATE, "messages": MESSAGES}
    return compressed(json.dumps({**page, **known}, ensure_ascii=False, separators=(",", ":"), default=str))


def dictionary(more: Mapping[str, str]) -> str:
    """Return the Chinese texts of the pages and `more` as JSON that is safe inside HTML."""
    return json.dumps(json.loads(asset("zh.json")) | dict(more), ensure_ascii=False).replace("<", "\\u003c")


def asset(name: str, package: str = _PACKAGE) -> str:
    """Return the text of a style, script or dictionary in the templates of `package`."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


def render_template(name: str, package: str = _PACKAGE, **values: Any) -> str:
    """Return the HTML that a template of `package` makes of `values`, which are escaped."""
    return Environment(loader=PackageLoader(package), autoescape=True).get_template(name).render(**values)


def _report(**values: Any) -> str:
    return render_template(
        "page.html.j2",
        style=asset("page.css"),
        scripts=[asset(f"{name}.js") for name in _SCRIPTS],
        chinese=dictionary({}),
        **values,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
