"""The web application of the pages `report --serve` and `chat --web`: one access check, one set of headers."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sql_agent.runs.pages import content_policy
from sql_agent.system.sockets import LOCAL_NAMES
from sql_agent.system.tokens import AccessCheck

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def web_app(routes: Sequence[Route], *, token: str | None, host: str) -> ASGIApp:
    """Return an app that serves `routes` at the address `host` to requests with the bearer `token`, if there is one.

    The path `/` needs no token: a browser cannot send one when it opens a page, so the page must contain no data. A
    server of this machine accepts only local names as Host, so that a site that resolves its own name to 127.0.0.1
    cannot reach it.
    """
    hosts = LOCAL_NAMES if host in LOCAL_NAMES else None
    access = Middleware(AccessCheck, token=token, open_paths={"/"}, hosts=hosts)
    return Starlette(routes=list(routes), middleware=[Middleware(_SecurityHeaders), access])


def page_response(render: Callable[[str], str]) -> Response:
    """Return the page that `render` makes for a fresh nonce, under a policy that runs no other scripts."""
    nonce = secrets.token_urlsafe(16)
    policy = f"{content_policy(nonce)}; frame-ancestors 'none'"
    return HTMLResponse(render(nonce), headers={"Content-Security-Policy": policy})


def page_url(sock: socket.socket, token: str | None) -> str:
    """Return the address of the page at `sock`. A browser sends the part after # to no server, and no log has it."""
    host, port = sock.getsockname()
    return f"http://{host}:{port}/{f'#token={token}' if token else ''}"


def serve(app: ASGIApp, sock: socket.socket) -> None:
    """Answer requests at the bound `sock` until Ctrl-C or SIGTERM."""
    with suppress(KeyboardInterrupt):
        web_server(app).run(sockets=[sock])


def web_server(app: ASGIApp) -> uvicorn.Server:
    """Return the server of `app`. It logs no requests: a log would contain the addresses of the users."""
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
