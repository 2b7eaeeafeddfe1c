"""Ports of one stack: the stable default if it is free, else the next free one.

A lease is an exclusive lock on one small file per port, held until `release` or the end of the process. So two stacks
that start together never choose the same port between the check and the server's bind.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

from artimon.stack.stack_errors import NoFreePortError

MAX_TRIES = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True if nothing listens on `port` now (a connection in TIME_WAIT does not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class PortLeases:
    """Ports leased by this process. Not thread-safe: one thread leases, before the servers start."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"artimon-ports-{os.getuid()}"
        self._held: dict[int, int] = {}

    def lease(self, wished: int) -> int:
        """Lease the first free, unleased port at or above `wished`. Raises NoFreePortError after TRIES ports."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for port in range(wished, min(wished + MAX_TRIES, 65536)):
            if port not in self._held and self._take(port):
                return port
        raise NoFreePortError(wished, MAX_TRIES)

    def _take(self, port: int) -> bool:
        held = os.open(self._folder / f"{port}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            return False
        if not is_free(port):
            os.close(held)
            return False
        self._held[port] = held
        return True

    def release(self) -> None:
        """Release every port."""
        for held in self._held.values():
            os.close(held)
        self._held.clear()
