"""Render HTML pages, and serve pages with an access check and security headers."""

from __future__ import annotations

import base64
import json
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

import uvicorn
from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sql_agent.rollouts.metrics import ACCURATE
from sql_agent.runs.rollout_pack import compressed
from sql_agent.schemas import DropCause, Outcome
from sql_agent.system.sockets import LOCAL_NAMES
from sql_agent.system.tokens import AccessCheck

_SCRIPTS = ("text", "access", "data", "chart", "filter", "list", "rollout", "related", "overview", "main")
_PACKAGE = "sql_agent.runs"
# Messages for people, by value of `Outcome` and `DropCause`.
MESSAGES = {word.value: word.message for word in (*Outcome, *DropCause)}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


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


def web_app(routes: Sequence[Route], *, token: str | None, host: str) -> ASGIApp:
    """Return an app that serves `routes` at the address `host` and requires the bearer `token`, if there is one.

    The path `/` requires no token, because a browser opens a page without one; so the page must contain no data.
    With a local `host`, the Host header must be a local name, which excludes websites whose name resolves to 127.0.0.1.
    """
    hosts = LOCAL_NAMES if host in LOCAL_NAMES else None
    access = Middleware(AccessCheck, token=token, open_paths={"/"}, hosts=hosts)
    return Starlette(routes=list(routes), middleware=[Middleware(_SecurityHeaders), access])


def page_response(render: Callable[[str], str]) -> Response:
    """Call `render` with a new nonce, and return its HTML with a content security policy for that nonce."""
    nonce = secrets.token_urlsafe(16)
    policy = f"{content_policy(nonce)}; frame-ancestors 'none'"
    return HTMLResponse(render(nonce), headers={"Content-Security-Policy": policy})


def page_url(sock: socket.socket, token: str | None) -> str:
    """Return the URL of the page at `sock`, with the token after a #, a part that browsers do not send."""
    host, port = sock.getsockname()
    return f"http://{host}:{port}/{f'#token={token}' if token else ''}"


def serve(app: ASGIApp, sock: socket.socket) -> None:
    """Serve `app` at the bound socket `sock` until Ctrl-C or SIGTERM."""
    with suppress(KeyboardInterrupt):
        web_server(app).run(sockets=[sock])


def web_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server for `app` that logs no requests, because a log would contain users' IP addresses."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    return uvicorn.Server(config)


class _SecurityHeaders:
    """ASGI middleware that adds security headers to every response, refusals included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
