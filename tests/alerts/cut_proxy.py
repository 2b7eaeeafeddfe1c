"""TCP proxy that cuts off: a test double, for injection only. While it is cut nothing passes, and nothing is closed, as
with a pulled cable; afterwards the old connections are reset."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_PIECE = 1 << 16


class CutProxy:
    """Listens on a free port of loopback and carries to `target` (host:port). Two threads a connection."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._ended = False
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Let nothing pass."""
        self._open.clear()

    def mend(self) -> None:
        """Reset the connections, and let new ones pass."""
        self._reset()
        self._open.set()

    def close(self) -> None:
        self._ended = True
        self._listener.close()
        self._open.set()
        self._reset()

    def _reset(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with self._lock:
            self._sockets.add(client)
        self._open.wait()
        try:
            server = socket.create_connection(self._target, 5.0)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._sockets.add(server)
        for ends in ((client, server), (server, client)):
            threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                self._open.wait()
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
