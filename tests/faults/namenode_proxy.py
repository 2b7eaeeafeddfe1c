"""A way to the NameNode that loses answers: a test double, for injection only. It carries bytes both ways; when it is
told to, it forwards the request that creates a commit of the raw table, waits for the answer, and hangs up instead of
giving it on."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress

_RENAME = (b"rename", b"/artimon/raw/_delta_log/", b".json")
_PIECE = 1 << 16
_ANSWER_S = 10.0


class NameNodeProxy:
    """Listens on a free port from the start; hangs up until it is aimed. One thread a connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._to_lose = 0
        self.lost_answers = self.lost_requests = 0
        self._lose_requests = False
        self._ended = threading.Event()
        threading.Thread(target=self._accept, name="namenode-proxy", daemon=True).start()

    def aim(self, port: int) -> None:
        """Address at which the NameNode listens."""
        self._target = "127.0.0.1", port

    def lose(self, count: int, requests: bool = False) -> None:
        """The answers of the next `count` commits do not arrive; with `requests` the commits do not arrive at all."""
        with self._lock:
            self._to_lose, self._lose_requests = count, requests

    def close(self) -> None:
        self._ended.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            if self._target is None:
                return
            try:
                server = socket.create_connection(self._target, 5.0)
            except OSError:
                return
            with server, suppress(OSError):
                self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        while not self._ended.is_set():
            ready, _, _ = select.select([client, server], [], [], 1.0)
            for one in ready:
                data = one.recv(_PIECE)
                if not data:
                    return
                if one is server:
                    client.sendall(data)
                elif self._loses(data):
                    self._lose_answer(server, data)
                    return
                else:
                    server.sendall(data)

    def _loses(self, data: bytes) -> bool:
        with self._lock:
            if not self._to_lose or not all(mark in data for mark in _RENAME):
                return False
            self._to_lose -= 1
            return True

    def _lose_answer(self, server: socket.socket, request: bytes) -> None:
        if self._lose_requests:
            self.lost_requests += 1
            return
        server.sendall(request)
        server.settimeout(_ANSWER_S)
        if server.recv(_PIECE):  # it is done: nobody is told
            self.lost_answers += 1
