"""TCP proxy that can be cut: forwards bytes to a server, or holds them back while both ends stay connected."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Listens on a free port and forwards to `port`. While `cut`, no byte passes and no connection is closed."""

    def __init__(self, port: int) -> None:
        self._target, self._open = port, threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._open.set()
        for sock in (self._listener, *self._sockets):
            with suppress(OSError):
                sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target), 5.0)
            except OSError:
                return
            server.settimeout(None)
            self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                self._open.wait()
                other.sendall(data)
        for sock in (one, other):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
