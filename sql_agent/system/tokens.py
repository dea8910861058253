"""Bearer tokens, and the access check of all servers that this program starts."""

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
    """Return a random token of characters that are allowed in a URL."""
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    """Return whether `given` equals `token`; the comparison takes constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


def bearer(token: str | None) -> dict[str, str]:
    """Return the HTTP headers with the bearer `token`; no headers for None."""
    return {} if token is None else {"Authorization": f"{_SCHEME}{token}"}


class AccessCheck:
    """ASGI middleware that requires the bearer `token` (unless None) and same-origin requests.

    The paths `open_paths` need no token. `Host` must be one of the names `hosts`, unless None: a website whose name
    resolves to 127.0.0.1 sends its own name as `Host`. `Origin`, which browsers send with requests of other websites,
    must be equal to `Host`. Refused requests get status 401 or 403.
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
        """Pass the request to the app, or refuse the request."""
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
        """Return the status and the reason of a refusal; None if the request is accepted."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if self._hosts is not None and host.rpartition(":")[0] not in self._hosts:
            return HTTPStatus.FORBIDDEN, "this host name is not one of this server; use 127.0.0.1 or localhost"
        if origin is not None and urlsplit(origin).netloc != host:
            return HTTPStatus.FORBIDDEN, "requests from other websites are refused"
        if self._token is None or scope["path"] in self._open_paths:
            return None
        given = headers.get(b"authorization", "")
        if given.startswith(_SCHEME) and is_token(given.removeprefix(_SCHEME), self._token):
            return None
        return HTTPStatus.UNAUTHORIZED, "the bearer token is missing or wrong"
