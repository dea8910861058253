"""Determine which LightningStore a run uses: its own, or one that `agl store` serves elsewhere."""

from __future__ import annotations

import http
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from sql_agent.config.endpoints import AglSettings, StoreSettings
from sql_agent.errors import ConfigError
from sql_agent.system.tokens import bearer

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_ROLES = ("algorithm", "runner", "both")
_TIMEOUT_S = 5.0
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a store is not behind http_proxy
HEALTH_PATH = "/v1/agl/health"
_START = "start one in another terminal: agl store --host 127.0.0.1 --port 4747"


@dataclass(frozen=True)
class StoreAddress:
    """Names a store by its URL, without a path, and the bearer token that it wants, if any."""

    url: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RunRole:
    """States which part of a run this process is, and where the store is.

    `role` is "algorithm", "runner" or "both"; `store` is None unless a store is served elsewhere; `managed_store` is
    true when the run makes its own store.
    """

    role: str
    store: StoreAddress | None
    managed_store: bool

    @classmethod
    def from_environment(cls, external_address: str | None) -> RunRole:
        """Read AGL_CURRENT_ROLE, AGL_MANAGED_STORE and STORE_TOKEN; `external_address` is that of a store elsewhere.

        Raises ConfigError when one of them is no role, or when they contradict the address.
        """
        role = (AglSettings().role or "").strip() or "both"
        if role not in _ROLES:
            raise ConfigError(f"AGL_CURRENT_ROLE={role} is no role", hint=f"set it to one of {', '.join(_ROLES)}")
        managed = managed_store_from_environment(external_address)
        if managed and role != "both":
            raise ConfigError(
                f"AGL_CURRENT_ROLE={role} needs a store that both roles share",
                hint="agl store --host 127.0.0.1 --port 4747, and --external-store-address http://127.0.0.1:4747 here",
            )
        store = StoreAddress(external_address.rstrip("/"), store_token()) if external_address else None
        return cls(role, store, managed)


def store_token() -> str | None:
    """Return the bearer token of stores that are served for other terminals and hosts, None where none is set."""
    token = StoreSettings().token
    return token.get_secret_value() if token else None


def managed_store_from_environment(external_address: str | None) -> bool:
    """Return whether the run makes its own store.

    Raises ConfigError when AGL_MANAGED_STORE is neither 0 nor 1, or contradicts `external_address`.
    """
    given = (AglSettings().managed_store or "").strip().lower()
    if given and given not in _TRUE | _FALSE:
        raise ConfigError(
            f"AGL_MANAGED_STORE={given} is neither 0 nor 1",
            hint="1: the run makes its own store; 0: it uses that of --external-store-address",
        )
    if external_address:
        if given in _TRUE:
            raise ConfigError(
                f"--external-store-address is given but AGL_MANAGED_STORE={given}", hint="set AGL_MANAGED_STORE=0"
            )
        return False
    if given in _FALSE:
        raise ConfigError(
            "AGL_MANAGED_STORE=0 but no store is named", hint="add --external-store-address http://127.0.0.1:PORT"
        )
    return True


def check_store(store: StoreAddress) -> None:
    """Raise ConfigError unless a store answers at `store`, admits us, and takes spans."""
    if not store.url.startswith(("http://", "https://")):
        raise ConfigError(f"{store.url!r} is not an http address", hint="example: http://127.0.0.1:4747")
    if b'"ok"' not in _answer(store, HEALTH_PATH):
        raise ConfigError(f"what answers at {store.url} is no store of agent-lightning", hint=_START)
    # An empty body is an export without spans.
    _answer(store, "/v1/traces", data=b"")


def _answer(store: StoreAddress, path: str, *, data: bytes | None = None) -> bytes:
    address, headers = store.url, bearer(store.token)
    if data is not None:
        headers["Content-Type"] = "application/x-protobuf"
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
        raise ConfigError(
            f"the store at {address} refuses {path} with status {error.code}", hint=f"is it another program? {_START}"
        ) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"no store answers at {address}: {reason}", hint=_START) from None
