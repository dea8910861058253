"""Read the role of this process (algorithm, runner or both) and the store's address, and check the store."""

from __future__ import annotations

import http
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace

from sql_agent.config.endpoints import AglSettings, StoreSettings
from sql_agent.errors import ConfigError
from sql_agent.system.servers import bearer

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a store is not behind http_proxy
HEALTH_PATH = "/v1/agl/health"
_OURS_PATH = "/v1/agl/consumed"  # an endpoint that `agl store` lacks
_UNKNOWN_PATH = (404, 405)  # HTTP statuses for a missing endpoint
_TIMEOUT_S = 5.0
_START = "start one in another terminal: agl store --host 127.0.0.1 --port 4747"
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_ROLES = ("algorithm", "runner", "both")


@dataclass(frozen=True)
class StoreAddress:
    """The URL of a store, without a path, and the store's bearer token, if any.

    `is_agl_store` is true for a store that answers only agent-lightning's own requests.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    is_agl_store: bool = False


def store_token() -> str | None:
    """Return the bearer token in STORE_TOKEN, None without a token.

    Raises ConfigError for a token that is not allowed in an HTTP header.
    """
    secret = StoreSettings().token
    token = secret.get_secret_value() if secret else None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError(
            "STORE_TOKEN has a line break or another character that is not allowed in an HTTP header",
            hint="use letters, digits and ASCII punctuation, in the environment or .env",
        )
    return token


@dataclass(frozen=True)
class RunRole:
    """The role of this process in a run, and the run's store.

    `role` is "algorithm", "runner" or "both". `store` is None if the run starts its own store.
    """

    role: str
    store: StoreAddress | None

    @classmethod
    def from_environment(cls, external_address: str | None) -> RunRole:
        """Read AGL_CURRENT_ROLE, AGL_MANAGED_STORE and STORE_TOKEN; `external_address` is the URL of a running store.

        Raises ConfigError for an unknown role or value, and when the variables contradict the address.
        """
        environment = AglSettings()
        role = (environment.role or "").strip() or "both"
        if role not in _ROLES:
            raise ConfigError(f"AGL_CURRENT_ROLE={role} is not a role", hint=f"set it to one of {', '.join(_ROLES)}")
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


def check_store(store: StoreAddress) -> StoreAddress:
    """Return `store` with `is_agl_store` set. Raises ConfigError unless a store answers and accepts the token."""
    if not store.url.startswith(("http://", "https://")):
        raise ConfigError(f"{store.url!r} is not an http address", hint="example: http://127.0.0.1:4747")
    if b'"ok"' not in (_answer(store, HEALTH_PATH) or b""):
        raise ConfigError(f"the server at {store.url} is no store of agent-lightning", hint=_START)
    return replace(store, is_agl_store=_answer(store, _OURS_PATH, data=b"[]") is None)


def _answer(store: StoreAddress, path: str, *, data: bytes | None = None) -> bytes | None:
    """GET `path`, or POST the JSON `data`, and return the start of the answer; None if the store lacks `path`."""
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
                f"the token for the store at {address} is {'wrong' if store.token else 'missing'}",
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
