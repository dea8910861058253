"""Bind sockets, and find the address at which other machines reach this machine."""

from __future__ import annotations

import errno
import socket
from urllib.parse import urlsplit

from sql_agent.errors import ConfigError, TrainingError

LOCAL_NAMES = ("127.0.0.1", "localhost")  # host names in URLs of this machine's own servers


def bind_local(port: int = 0) -> socket.socket:
    """Return a socket bound to 127.0.0.1; port 0 means any free port. Raises TrainingError if the port is taken."""
    return bind("127.0.0.1", port)


def bind(host: str, port: int = 0) -> socket.socket:
    """Return a socket bound to `host`, an address of this machine; port 0 means any free port.

    Raises ConfigError for an invalid host or port, and TrainingError if the port is taken or the address is not one of
    this machine.
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
    """Return the URL, without a path, of a server that listens at `sock`."""
    host, port = sock.getsockname()[:2]
    return f"http://{host}:{port}"


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free at the time of the call."""
    with bind_local() as sock:
        port: int = sock.getsockname()[1]
        return port


def address_towards(url: str) -> str:
    """Return this machine's IPv4 address in the network of the server at `url`; 127.0.0.1 for a local server.

    Nothing is sent. Raises TrainingError for an unknown host name or a network without a route.
    """
    server = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((server.hostname or "127.0.0.1", server.port or 80))
        except OSError as error:
            raise TrainingError(f"no route to {url}: {error.strerror or error}", hint="check the address") from None
        address: str = probe.getsockname()[0]
        return address
