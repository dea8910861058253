"""Let only those ask who know the token, and only pages of this server."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.system.tokens import is_token

_OPEN = "/"  # the page itself, which holds nothing and asks for all else with the token


class Access:
    """ASGI middleware that refuses requests without the bearer `token`, if there is one, and from other sites.

    `hosts` are the names under which this server may be asked, None for any: a page of another site that resolves its
    name to 127.0.0.1 sends its own.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Sequence[str] | None) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 401 or 403."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts is not None and host.rpartition(":")[0] not in self._hosts:
            return await PlainTextResponse("unknown host", 403)(scope, receive, send)
        if origin is not None and urlsplit(origin).netloc != host:
            return await PlainTextResponse("another site", 403)(scope, receive, send)
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token is not None and request.url.path != _OPEN and not is_token(given, self._token):
            return await PlainTextResponse("the token is missing or wrong", 401)(scope, receive, send)
        return await self._app(scope, receive, send)
