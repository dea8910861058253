"""Read the role of this process (algorithm, runner or both); check an external store, and report outages."""

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
from dataclasses import dataclass, field

from sql_agent.config.endpoints import AglSettings, TokenSettings
from sql_agent.errors import ConfigError
from sql_agent.system.messages import Outage
from sql_agent.system.servers import bearer

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ignores http_proxy
HEALTH_PATH = "/v1/agl/health"
_WORKERS_PATH = "/v1/agl/workers"
_TIMEOUT_S = 5.0
_PAUSE_S = 0.5  # pause between two health checks
_WATCH_TIMEOUT_S = 1.5
_SILENT_S = 3.5  # time without an answer before an outage is reported: a store may be busy or restart
_START = "start a store in another terminal: agl store --host 127.0.0.1 --port 4747"
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_ROLES = ("algorithm", "runner", "both")


@dataclass(frozen=True)
class StoreAddress:
    """The URL of a store, without a path, and the bearer token of the store (None: it requires no token)."""

    url: str
    token: str | None = field(default=None, repr=False)


def store_token() -> str | None:
    """Return the bearer token in STORE_TOKEN; None if the variable is not set.

    Raises ConfigError if the token is not allowed in an HTTP header.
    """
    secret = TokenSettings().store
    token = secret.get_secret_value() if secret else None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError(
            "STORE_TOKEN has a character that is not allowed in an HTTP header, such as a line break",
            hint="use letters, digits and ASCII punctuation, in the environment or .env",
        )
    return token


@dataclass(frozen=True)
class RunRole:
    """The `role` of this process ("algorithm", "runner" or "both") and its store (None: the run starts a store)."""

    role: str
    store: StoreAddress | None

    @classmethod
    def from_environment(cls, external_address: str | None) -> RunRole:
        """Read AGL_CURRENT_ROLE, AGL_MANAGED_STORE and STORE_TOKEN; `external_address` is the URL of a running store.

        Raises ConfigError if a variable has an unknown value or contradicts the address.
        """
        environment = AglSettings()
        role = (environment.role or "").strip() or "both"
        if role not in _ROLES:
            raise ConfigError(f"AGL_CURRENT_ROLE={role} is not a role", hint=f"set it to {' or '.join(_ROLES)}")
        given = (environment.managed_store or "").strip().lower()
        if given and given not in _TRUE | _FALSE:
            raise ConfigError(
                f"AGL_MANAGED_STORE={given} is neither 0 nor 1",
                hint="1: the run starts its own store; 0: the run uses the store at --external-store-address",
            )
        if external_address:
            if given in _TRUE:
                raise ConfigError(
                    f"--external-store-address is given but AGL_MANAGED_STORE={given}", hint="set AGL_MANAGED_STORE=0"
                )
            return cls(role, StoreAddress(external_address.rstrip("/"), store_token()))
        if given in _FALSE or role != "both":
            needs = "AGL_MANAGED_STORE=0" if given in _FALSE else f"AGL_CURRENT_ROLE={role}"
            raise ConfigError(
                f"{needs} needs the address of a store",
                hint=f"{_START}; then add --external-store-address http://127.0.0.1:4747 here",
            )
        return cls(role, None)


def check_store(store: StoreAddress) -> None:
    """Raise ConfigError unless a store answers at the URL and accepts the token."""
    if not store.url.startswith(("http://", "https://")):
        raise ConfigError(f"{store.url!r} is not an http address", hint="example: http://127.0.0.1:4747")
    try:
        for path in (HEALTH_PATH, _WORKERS_PATH):  # the health page requires no token
            request = urllib.request.Request(store.url + path, headers=bearer(store.token))  # noqa: S310  checked
            with DIRECTLY.open(request, timeout=_TIMEOUT_S) as response:
                if path == HEALTH_PATH and b'"ok"' not in response.read(1000):
                    raise ConfigError(f"the server at {store.url} is not an agent-lightning store", hint=_START)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.UNAUTHORIZED:
            raise ConfigError(
                f"the token for the store at {store.url} is {'wrong' if store.token else 'missing'}",
                hint="set STORE_TOKEN, in the environment or .env, to the token with which the store was started",
            ) from None
        raise ConfigError(
            f"the server at {store.url} is not an agent-lightning store: {path} has status {error.code}", hint=_START
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"no store answers at {store.url}: {reason}", hint=_START) from None


@contextmanager
def watched_store(address: str, who: str, say: Callable[[str], None]) -> Iterator[None]:
    """During the block, report with `say` that the store at `address` is down and `who` waits, or that it is back.

    `say` is called on the running event loop. A thread polls the store, because an event loop that is busy would take
    its own delay for an outage.
    """
    loop, closed = asyncio.get_running_loop(), threading.Event()

    def say_on_loop(text: str) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(lambda: None if closed.is_set() else say(text))

    outage = Outage(f"The store at {address}", say_on_loop)
    threading.Thread(target=_ask, args=(address, who, outage, closed), name="store watch", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _ask(address: str, who: str, outage: Outage, closed: threading.Event) -> None:
    answered, failed = time.monotonic(), 0
    while not closed.wait(_PAUSE_S):
        try:
            DIRECTLY.open(address + HEALTH_PATH, timeout=_WATCH_TIMEOUT_S).close()
        except (OSError, http.client.HTTPException) as error:
            failed += 1
            silent_s = time.monotonic() - answered
            if failed > 1 and silent_s >= _SILENT_S:  # one failure can mean that this process was suspended
                why = getattr(error, "reason", error)
                outage.begin(f"does not answer, for {silent_s:.0f} s now ({why}); {who} waits for it")
        else:
            answered, failed = time.monotonic(), 0
            outage.end()
