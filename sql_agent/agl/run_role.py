"""Determine which LightningStore a run uses: its own, or one that `agl store` serves elsewhere."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass

from sql_agent.config.endpoints import AglSettings
from sql_agent.errors import ConfigError

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_ROLES = ("algorithm", "runner", "both")
_TIMEOUT_S = 5.0
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a store is not behind http_proxy
HEALTH_PATH = "/v1/agl/health"
_NAMED_BY_FLAG = "the store is the one of --external-store-address"
_START = "start one in another terminal: agl store --host 127.0.0.1 --port 4747"


@dataclass(frozen=True)
class RunRole:
    """States which part of a run this process is, and where the store is.

    `role` is "algorithm", "runner" or "both"; `store_address` is None unless a store is served elsewhere;
    `managed_store` is true when the run makes its own store.
    """

    role: str
    store_address: str | None
    managed_store: bool

    @classmethod
    def from_environment(cls, external_address: str | None) -> RunRole:
        """Read AGL_CURRENT_ROLE and AGL_MANAGED_STORE; `external_address` is that of a store that runs elsewhere.

        Raises ConfigError when one of them is no role, when they contradict the address, or when a variable is set
        that `refuse_server_variables` refuses.
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
        if managed:
            refuse_server_variables(
                host="a run's own store is for this host; `sql-agent store --host` serves one for others",
                port="runner.store_port sets the port of a run's own store",
            )
        else:
            refuse_server_variables(host=_NAMED_BY_FLAG, port=_NAMED_BY_FLAG)
        return cls(role, external_address.rstrip("/") if external_address else None, managed)


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


def refuse_server_variables(*, host: str, port: str) -> None:
    """Raise ConfigError when AGL_SERVER_HOST or AGL_SERVER_PORT is set; `host` and `port` say what to use instead.

    By them agent-lightning's own programs choose where a store listens, and also which store a runner uses.
    """
    given = AglSettings()
    for name, value, instead in (
        ("AGL_SERVER_HOST", given.server_host, host),
        ("AGL_SERVER_PORT", given.server_port, port),
    ):
        if value:
            raise ConfigError(f"{name}={value} is not used by this program", hint=f"unset it; {instead}")


def check_store(address: str) -> None:
    """Raise ConfigError unless a store answers at `address` and takes spans."""
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"{address!r} is not an http address", hint="example: http://127.0.0.1:4747")
    address = address.rstrip("/")
    if b'"ok"' not in _answer(address, HEALTH_PATH):
        raise ConfigError(f"what answers at {address} is no store of agent-lightning", hint=_START)
    # An empty body is an export without spans.
    _answer(address, "/v1/traces", data=b"")


def _answer(address: str, path: str, *, data: bytes | None = None) -> bytes:
    request = urllib.request.Request(  # noqa: S310  the scheme was checked above
        address + path, data=data, headers={"Content-Type": "application/x-protobuf"} if data is not None else {}
    )
    try:
        with DIRECTLY.open(request, timeout=_TIMEOUT_S) as response:
            body: bytes = response.read(1000)
            return body
    except urllib.error.HTTPError as error:
        raise ConfigError(
            f"the store at {address} refuses {path} with status {error.code}", hint=f"is it another program? {_START}"
        ) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"no store answers at {address}: {reason}", hint=_START) from None
