"""Plain TCP from the client's side."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def to_end(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found
