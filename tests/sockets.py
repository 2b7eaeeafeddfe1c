"""TCP client helpers."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Unused port of 127.0.0.1."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def to_end(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found
