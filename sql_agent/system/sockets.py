"""Bind ports, by default such that only this machine can reach them; find the address that others reach."""

from __future__ import annotations

import errno
import socket
from urllib.parse import urlsplit

from sql_agent.errors import ConfigError, TrainingError

LOCAL_NAMES = ("127.0.0.1", "localhost")  # under which a browser of this machine asks a server of it


def bind_local(port: int = 0) -> socket.socket:
    """Return a socket bound to 127.0.0.1; port 0 means any free one. Raises TrainingError when the port is taken."""
    return bind("127.0.0.1", port)


def bind(host: str, port: int = 0) -> socket.socket:
    """Return a socket bound to an address of this machine; port 0 means any free one.

    Raises TrainingError when the port is taken, and ConfigError when it is none or the address is none of this machine.
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
            raise TrainingError(f"port {port} is taken: {error.strerror}", hint="choose another") from None
        raise TrainingError(
            f"cannot listen at {host}:{port}: {error.strerror}", hint="choose another address"
        ) from None
    return sock


def http_url(sock: socket.socket) -> str:
    """Return the URL of a server that listens on `sock`, without a path."""
    host, port = sock.getsockname()[:2]
    return f"http://{host}:{port}"


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with bind_local() as sock:
        port: int = sock.getsockname()[1]
        return port


def address_towards(url: str) -> str:
    """Return the IPv4 address that this machine has in the network of the server at `url`; 127.0.0.1 for its own.

    Nothing is sent. Raises TrainingError when the server's name or network is not known.
    """
    server = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((server.hostname or "127.0.0.1", server.port or 80))
        except OSError as error:
            raise TrainingError(f"no way to {url}: {error.strerror or error}", hint="check the address") from None
        address: str = probe.getsockname()[0]
        return address
