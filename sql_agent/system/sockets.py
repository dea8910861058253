"""Bind ports that only this machine can reach."""

from __future__ import annotations

import socket

from sql_agent.errors import TrainingError


def bind_local(port: int = 0) -> socket.socket:
    """Return a socket bound to 127.0.0.1; port 0 means any free one. Raises TrainingError when the port is taken."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError as error:
        sock.close()
        raise TrainingError(f"port {port} is taken: {error.strerror}", hint="choose another, or 0 for any") from None
    return sock


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with bind_local() as sock:
        port: int = sock.getsockname()[1]
        return port
