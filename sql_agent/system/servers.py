"""Run web servers: bind sockets, check bearer tokens and origins, serve ASGI apps."""

from __future__ import annotations

import asyncio
import errno
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Literal
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sql_agent.errors import ConfigError, TrainingError

LOCAL_NAMES = ("127.0.0.1", "localhost")  # host names of this machine
_KEEP_ALIVE_S = 3600  # uvicorn's default of 5 s closes connections between two training steps
_STOP_S = 5.0  # maximum wait for the server to stop
_GRACE_S = 1  # time in which open requests may end when the server stops
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def bind(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a socket bound to `host`, an address of this machine, and to `port`; port 0 means any free port.

    Raises ConfigError for an impossible address, TrainingError if the port is taken.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OverflowError, UnicodeError):
        sock.close()
        raise ConfigError(f"there is no address {host}:{port}", hint="ports are numbers from 1 to 65535") from None
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise TrainingError(f"port {port} is taken: {error.strerror}", hint="choose another port") from None
        raise TrainingError(
            f"cannot listen at {host}:{port}: {error.strerror}", hint="choose an IPv4 address of this machine"
        ) from None
    return sock


def http_url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://{host}:{port}"


def address_towards(url: str) -> str:
    """Return this machine's IPv4 address in the network of the server at `url`, without sending anything.

    Raises TrainingError if the server's network cannot be reached.
    """
    server = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((server.hostname or "127.0.0.1", server.port or 80))
        except OSError as error:
            raise TrainingError(f"no route to {url}: {error.strerror or error}", hint="check the address") from None
        address: str = probe.getsockname()[0]
        return address


def new_token() -> str:
    return secrets.token_urlsafe(24)


def bearer(token: str | None) -> dict[str, str]:
    """Return the HTTP header with the bearer `token`; no header for None."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class AccessCheck:
    """ASGI middleware that requires the bearer `token` (unless None) and same-origin requests.

    The paths `open_paths` need no token. If the server's address `host` is local, the header Host must be one of
    `LOCAL_NAMES`, because a website whose name resolves to 127.0.0.1 sends its own name as Host. The header Origin,
    which browsers send with requests from other websites, must be equal to Host. A refusal has status 401 or 403.
    """

    def __init__(self, app: ASGIApp, token: str | None, *, open_paths: Collection[str] = (), host: str = "") -> None:
        self._app = app
        self._token = token
        self._open_paths = open_paths
        self._is_local = host in LOCAL_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            status, detail = refusal
            headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
            await JSONResponse({"detail": detail}, status, headers)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        """Return the status and the reason of a refusal; None if the request is accepted."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if self._is_local and host.rpartition(":")[0] not in LOCAL_NAMES:
            return HTTPStatus.FORBIDDEN, "this server has another host name; use 127.0.0.1 or localhost"
        if origin is not None and urlsplit(origin).netloc != host:
            return HTTPStatus.FORBIDDEN, "requests from other websites are refused"
        if self._token is None or scope["path"] in self._open_paths:
            return None
        given = headers.get(b"authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):  # compares in constant time
            return None
        return HTTPStatus.UNAUTHORIZED, "the bearer token is missing or wrong"


def web_app(routes: Sequence[Route], *, token: str | None, host: str) -> ASGIApp:
    """Return an app that serves `routes` at the address `host` and requires the bearer `token`, unless None.

    The path `/` requires no token, because a browser that opens a page sends none; so this page must contain no data.
    For a local `host`, see `AccessCheck`.
    """
    access = Middleware(AccessCheck, token=token, open_paths={"/"}, host=host)
    return Starlette(routes=list(routes), middleware=[Middleware(_SecurityHeaders), access])


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


def uvicorn_server(
    app: ASGIApp,
    token: str | None,
    *,
    open_paths: Collection[str] = (),
    lifespan: Literal["auto", "off"] = "off",
    log_level: str = "warning",
) -> uvicorn.Server:
    """Return a server for `app` that requires the bearer `token`, unless None, except for the paths `open_paths`.

    With `lifespan` "auto", the server calls the startup and shutdown handlers of `app`.
    """
    config = uvicorn.Config(
        AccessCheck(app, token, open_paths=open_paths),
        interface="asgi3",
        log_level=log_level,
        access_log=False,  # it would contain IP addresses of users
        server_header=False,
        proxy_headers=False,
        lifespan=lifespan,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    return uvicorn.Server(config)


@asynccontextmanager
async def served(server: uvicorn.Server, sock: socket.socket) -> AsyncIterator[None]:
    """Run `server` on the running event loop during the block."""
    # Not serve(), because serve() installs signal handlers.
    serving = asyncio.create_task(server._serve(sockets=[sock]))
    while not server.started:
        if serving.done():
            address = ":".join(map(str, sock.getsockname()[:2]))
            raise TrainingError(f"cannot serve at {address}: {serving.exception()!r}", hint="choose another port")
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([serving], timeout=_STOP_S)


def page_url(sock: socket.socket, token: str | None) -> str:
    """Return the URL of the page at `sock`; the token is in the fragment, which browsers do not send."""
    return f"{http_url(sock)}/{f'#token={token}' if token else ''}"


def serve(app: ASGIApp, sock: socket.socket) -> None:
    with suppress(KeyboardInterrupt):
        uvicorn_server(app, None).run(sockets=[sock])
