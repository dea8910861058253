"""Make, show and demand the bearer tokens of servers that this program starts."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEME = "Bearer "
_REFUSAL = json.dumps({"detail": "the bearer token is missing or wrong"}).encode()


def new_token() -> str:
    """Return a random token that can stand in an address."""
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    """Return whether `given` is `token`, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), token.encode())


def bearer(token: str | None) -> dict[str, str]:
    """Return the headers that show `token` to a server; none without one."""
    return {} if token is None else {"Authorization": f"{_SCHEME}{token}"}


class TokenRequired:
    """ASGI app that lets `app` answer requests with the bearer `token`, and all requests for the paths `open_to_all`.

    Others get status 401. Without a token `app` answers all.
    """

    def __init__(self, app: ASGIApp, token: str | None, *, open_to_all: Collection[str] = ()) -> None:
        self._app = app
        self._token = token
        self._open_to_all = open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if self._token is None or scope["type"] == "lifespan" or self._may_pass(scope, self._token):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_REFUSAL))]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _may_pass(self, scope: Scope, token: str) -> bool:
        if scope["path"] in self._open_to_all:
            return True
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), "")
        return given.startswith(_SCHEME) and is_token(given.removeprefix(_SCHEME), token)
