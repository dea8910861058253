"""Name a store that several terminals share, check it before a run, and report when it goes down or comes back."""

from __future__ import annotations

import asyncio
import http
import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from sql_agent.config.endpoints import StoreSettings
from sql_agent.errors import ConfigError
from sql_agent.system.messages import Outage
from sql_agent.system.tokens import bearer

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a store is not behind http_proxy
HEALTH_PATH = "/v1/agl/health"
_OURS_PATH = "/v1/agl/consumed"  # a request that `agl store` does not know
_UNKNOWN_PATH = (404, 405)
_TIMEOUT_S = 5.0
_START = "start one in another terminal: agl store --host 127.0.0.1 --port 4747"

_PAUSE_S = 0.5  # between two requests of the watch
_WATCH_TIMEOUT_S = 1.5
_SILENT_S = 3.5  # two requests that time out, or refused ones for as long: a store may be busy, or restart


@dataclass(frozen=True)
class StoreAddress:
    """The URL of a store, without a path, and the bearer token that it wants, if any.

    `is_agl_store` is true for a store that knows agent-lightning's own requests only.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    is_agl_store: bool = False


def store_token() -> str | None:
    """Return the bearer token of stores for other terminals and hosts, None without one.

    Raises ConfigError for a token that an HTTP header cannot carry.
    """
    secret = StoreSettings().token
    token = secret.get_secret_value() if secret else None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError(
            "STORE_TOKEN has a line break or another character that an HTTP header cannot carry",
            hint="use letters, digits and ASCII punctuation, in the environment or .env",
        )
    return token


def check_store(store: StoreAddress) -> StoreAddress:
    """Return `store` with its kind. Raises ConfigError unless a store answers there and accepts the token."""
    if not store.url.startswith(("http://", "https://")):
        raise ConfigError(f"{store.url!r} is not an http address", hint="example: http://127.0.0.1:4747")
    if b'"ok"' not in (_answer(store, HEALTH_PATH) or b""):
        raise ConfigError(f"the server at {store.url} is no store of agent-lightning", hint=_START)
    return replace(store, is_agl_store=_answer(store, _OURS_PATH, data=b"[]") is None)


@contextmanager
def watched_store(address: str, who: str, say: Callable[[str], None]) -> Iterator[None]:
    """Print with `say` when the store at `address`, for which `who` waits, goes down, and when it comes back.

    Must be entered in a running event loop, on which `say` is called. A thread asks the store, because to an event loop
    that is busy for seconds every store would seem silent.
    """
    loop, closed = asyncio.get_running_loop(), threading.Event()

    def say_inside(text: str) -> None:
        if not closed.is_set():
            say(text)

    def say_on_loop(text: str) -> None:
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(say_inside, text)

    outage = Outage(f"The store at {address}", say_on_loop)
    threading.Thread(target=_ask, args=(address, who, outage, closed), name="store watch", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _answer(store: StoreAddress, path: str, *, data: bytes | None = None) -> bytes | None:
    """Return what the store answers to a GET, or to a POST of the JSON `data`; None when it does not know `path`."""
    address, headers = store.url, bearer(store.token)
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(address + path, data=data, headers=headers)  # noqa: S310  the scheme was checked
    try:
        with DIRECTLY.open(request, timeout=_TIMEOUT_S) as response:
            body: bytes = response.read(1000)
            return body
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            raise ConfigError(
                f"the store at {address} wants {'another' if store.token else 'a'} token",
                hint="set STORE_TOKEN, in the environment or .env, to that of the terminal that serves it",
            ) from None
        if error.code in _UNKNOWN_PATH:
            return None
        raise ConfigError(
            f"the store at {address} refuses {path} with status {error.code}", hint=f"is it another program? {_START}"
        ) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"no store answers at {address}: {reason}", hint=_START) from None


def _ask(address: str, who: str, outage: Outage, closed: threading.Event) -> None:
    answered, failed = time.monotonic(), 0
    while not closed.wait(_PAUSE_S):
        try:
            DIRECTLY.open(address + HEALTH_PATH, timeout=_WATCH_TIMEOUT_S).close()
        except (OSError, http.client.HTTPException) as error:
            failed += 1
            silent_s = time.monotonic() - answered
            if failed > 1 and silent_s >= _SILENT_S:  # one request fails too when this process itself was stopped
                why = getattr(error, "reason", error)
                outage.begin(f"does not answer, for {silent_s:.0f} s now ({why}); {who} waits for it")
        else:
            answered, failed = time.monotonic(), 0
            outage.end()
