"""Render HTML pages."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.responses import HTMLResponse, Response

from sql_agent.rollouts.metrics import ACCURATE
from sql_agent.runs.rollout_pack import compressed
from sql_agent.schemas import DropCause, Outcome

_SCRIPTS = ("text", "access", "data", "chart", "filter", "list", "rollout", "related", "overview", "main")
_PACKAGE = "sql_agent.runs"
# Messages for people, by value of `Outcome` and `DropCause`.
MESSAGES = {word.value: word.message for word in (*Outcome, *DropCause)}


def render_report(page: Mapping[str, Any], blocks: Sequence[Sequence[bytes]]) -> str:
    """Return the HTML of a report that works offline, with a content security policy in a meta tag.

    `page` is the result of `_page_data` in report.py. `blocks` are the blocks of each run's RolloutPack.
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
    """Return the HTML of a report whose scripts, allowed by `nonce`, request the run's data from the server."""
    return _report(nonce=nonce, live=True, title="Run", disclaimer=disclaimer)


def content_policy(nonce: str) -> str:
    """Return a content security policy that allows only scripts and styles with `nonce`."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def packed(page: Mapping[str, Any]) -> bytes:
    """Return the data `page`, with constants for the scripts, as JSON compressed with gzip."""
    known = {"accurate": ACCURATE, "messages": MESSAGES}
    return compressed(json.dumps({**page, **known}, ensure_ascii=False, separators=(",", ":"), default=str))


def dictionary(more: Mapping[str, str]) -> str:
    """Return the Chinese translations of all pages, and `more` translations, as JSON that is safe inside HTML."""
    return json.dumps(json.loads(asset("zh.json")) | dict(more), ensure_ascii=False).replace("<", "\\u003c")


def asset(name: str, package: str = _PACKAGE) -> str:
    """Return the text of the file `name` in the folder templates of `package`."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


def render_template(name: str, package: str = _PACKAGE, **values: Any) -> str:
    """Render the template `name` of `package`; in HTML, `values` are escaped."""
    environment = Environment(loader=PackageLoader(package), autoescape=select_autoescape(("html.j2",)))
    return environment.get_template(name).render(**values)


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


def page_response(render: Callable[[str], str]) -> Response:
    """Call `render` with a new nonce, and return its HTML with a content security policy for that nonce."""
    nonce = secrets.token_urlsafe(16)
    policy = f"{content_policy(nonce)}; frame-ancestors 'none'"
    return HTMLResponse(render(nonce), headers={"Content-Security-Policy": policy})
