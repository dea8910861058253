"""Bearer tokens of the servers that this program starts, and the one access check of all of them."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Collection
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEME = "Bearer "


def new_token() -> str:
    """Return a random token that can stand in an address."""
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    """Return whether `given` is `token`, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), token.encode())


def bearer(token: str | None) -> dict[str, str]:
    """Return the headers that show `token` to a server; none without one."""
    return {} if token is None else {"Authorization": f"{_SCHEME}{token}"}


class AccessCheck:
    """ASGI middleware: require the bearer token and, for `hosts`, a same-origin request under one of these names.

    The paths `open_paths` need no token; without a token no path needs one. A browser sends `Origin` with requests of
    other sites, and a site that resolves its own name to 127.0.0.1 sends that name as `Host`. Refusals have status 401
    or 403. `hosts` None accepts any `Host`, and `Origin` must still name it.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        *,
        open_paths: Collection[str] = (),
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._token = token
        self._open_paths = open_paths
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            status, detail = refusal
            body = json.dumps({"detail": detail}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            if status == HTTPStatus.UNAUTHORIZED:
                headers.append((b"www-authenticate", b"Bearer"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        """Return the status and the reason to refuse a request with; None to pass it on."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if self._hosts is not None and host.rpartition(":")[0] not in self._hosts:
            return HTTPStatus.FORBIDDEN, "this server is not known under that Host"
        if origin is not None and urlsplit(origin).netloc != host:
            return HTTPStatus.FORBIDDEN, "requests of other sites are refused"
        if self._token is None or scope["path"] in self._open_paths:
            return None
        given = headers.get(b"authorization", "")
        if given.startswith(_SCHEME) and is_token(given.removeprefix(_SCHEME), self._token):
            return None
        return HTTPStatus.UNAUTHORIZED, "the bearer token is missing or wrong"
