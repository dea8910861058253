"""Read from the environment which part of a run this process is, and which store the run uses."""

from __future__ import annotations

from dataclasses import dataclass

from sql_agent.config.endpoints import AglSettings
from sql_agent.errors import ConfigError
from sql_agent.rollouts.store_address import StoreAddress, store_token

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_ROLES = ("algorithm", "runner", "both")


@dataclass(frozen=True)
class RunRole:
    """Which part of a run this process is, and where the store is.

    `role` is "algorithm", "runner" or "both"; `store` is None when the run makes its own store.
    """

    role: str
    store: StoreAddress | None

    @classmethod
    def from_environment(cls, external_address: str | None) -> RunRole:
        """Read AGL_CURRENT_ROLE, AGL_MANAGED_STORE and STORE_TOKEN; `external_address` is that of a store elsewhere.

        Raises ConfigError for an unknown role or value, and for a contradiction between the variables and the address.
        """
        environment = AglSettings()
        role = (environment.role or "").strip() or "both"
        if role not in _ROLES:
            raise ConfigError(f"AGL_CURRENT_ROLE={role} is not a role", hint=f"set it to one of {', '.join(_ROLES)}")
        given = (environment.managed_store or "").strip().lower()
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
            return cls(role, StoreAddress(external_address.rstrip("/"), store_token()))
        if given in _FALSE or role != "both":
            needs = "AGL_MANAGED_STORE=0" if given in _FALSE else f"AGL_CURRENT_ROLE={role}"
            raise ConfigError(
                f"{needs} needs a store that several processes share, and none is named",
                hint="agl store --host 127.0.0.1 --port 4747, and --external-store-address http://127.0.0.1:4747 here",
            )
        return cls(role, None)
