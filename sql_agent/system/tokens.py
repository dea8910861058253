"""Make and compare the bearer tokens of servers that this program starts."""

from __future__ import annotations

import hmac
import secrets


def new_token() -> str:
    """Return a random token that can stand in an address."""
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    """Return whether `given` is `token`, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), token.encode())
