"""A way to a server that can fall silent: connections are taken and kept, and nothing passes any more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sql_agent.system.servers import bind


class SilentRelay:
    """Passes bytes between its own `port` and a server, both ways, while `open` is set."""

    def __init__(self, host: str, port: int) -> None:
        self.open = threading.Event()
        self.open.set()
        self._target = (host, port)
        self._listener = bind()
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.open.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # of the listener, which is closed at the end
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):  # of a connection that the other side has left
            while data := source.recv(65536):
                self.open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(host: str, port: int) -> Iterator[SilentRelay]:
    """Yield a relay to a server, which is closed afterwards."""
    relay = SilentRelay(host, port)
    try:
        yield relay
    finally:
        relay.close()
