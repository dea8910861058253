"""Send messages between a process and its workers: JSON behind its length, over a stream socket."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any, NoReturn

# To a process that forks: the number of a child to start, on the socket that comes along; negative: one to kill.
ORDER = struct.Struct("!i")
_LENGTH = struct.Struct("!I")
_READ_BYTES = 65_536


class Channel:
    """Holds one end of a socket pair. Both ends are used by one thread at a time."""

    def __init__(self, end: socket.socket, *, max_bytes: int) -> None:
        """`max_bytes` is the longest message that is accepted from the other side."""
        self._socket = end
        self._max_bytes = max_bytes
        self._read = bytearray()

    def send(self, message: object, due: float | None = None) -> None:
        """Send `message` as JSON until the time `due` of `time.monotonic`. Raises TimeoutError, and OSError."""
        data = json.dumps(message).encode("ascii")  # other characters are escaped, lone surrogates too
        self._limit_to(due)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, due: float | None = None) -> Any:
        """Return the next message, waiting until `due`.

        Raises TimeoutError, after which it may be called again, EOFError when the other side has ended, and ValueError
        when it sent no message of ours.
        """
        self._read_until(_LENGTH.size, due)
        (length,) = _LENGTH.unpack_from(self._read)
        if length > self._max_bytes:
            raise ValueError(f"a message of {length} bytes, at most {self._max_bytes} are accepted")
        end = _LENGTH.size + length
        self._read_until(end, due)
        message = bytes(self._read[_LENGTH.size : end])
        del self._read[:end]
        return json.loads(message, parse_constant=_refuse)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read_until(self, size: int, due: float | None) -> None:
        while len(self._read) < size:
            self._limit_to(due)
            try:
                received = self._socket.recv(_READ_BYTES)
            except ConnectionError:
                received = b""
            if not received:
                raise EOFError("the other side has ended")
            self._read += received

    def _limit_to(self, due: float | None) -> None:
        if due is None:
            self._socket.settimeout(None)
            return
        left = due - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
