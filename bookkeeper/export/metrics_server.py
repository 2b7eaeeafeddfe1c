"""Small bounded HTTP server that exposes the variables of a process to Prometheus.

Off by default; enabled by ARTIMON_OPENMETRICS, `configure(openmetrics=…)` or `bookkeeper.exposition.serve()`. Listens
on loopback by default.
"""

from __future__ import annotations

import gzip
import logging
import os
import socket
import threading
import weakref
from collections.abc import Iterable
from time import monotonic
from typing import NamedTuple

from bookkeeper.export.openmetrics import content_type, render
from bookkeeper.variables.process_variables import ProcessVariables

LOOPBACK = "127.0.0.1"
MAX_PORTS = 1000
MAX_HEAD_BYTES = 8192
REQUEST_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 8
MIN_GZIP_BYTES = 1024
log = logging.getLogger("bookkeeper.openmetrics")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class ListenAddress(NamedTuple):
    """Address, and a range of ports; the server takes the first free one. Port 0: any."""

    host: str
    first: int
    last: int


def parse_listen_address(text: str) -> ListenAddress:
    """Parse `[host:]port[-port]`, such as `9464`, `0.0.0.0:9464`, `[::1]:9464-9479`. Raises ValueError."""
    host, colon, ports = text.strip().rpartition(":")
    first, dash, last = ports.partition("-")
    problem = f"openmetrics {text!r:.80}: give [host:]port or [host:]port-port, at most {MAX_PORTS} ports"
    if not ports.isascii() or not first.isdigit() or (dash and not last.isdigit()) or (colon and not host):
        raise ValueError(problem)
    where = ListenAddress(host.strip("[]") or LOOPBACK, int(first), int(last or first))
    if not 0 <= where.first <= where.last <= 65535 or where.last - where.first >= MAX_PORTS:
        raise ValueError(problem)
    return where


class MetricsServer:
    """Answers `GET /metrics`: one request per connection, a thread each, at most 8 at once. A request may take 5 s and
    8 KiB; requests beyond these limits are refused. A forked child closes its copy of the socket.

    Locks: `_lock` guards `_busy`."""

    def __init__(self, book: ProcessVariables, where: ListenAddress) -> None:
        self._book, self._address = book, where
        self.host, self.port = where.host, 0
        self.answered = self.refused = 0
        self._lock = threading.Lock()
        self._open_connections = 0
        self._listener: socket.socket | None = None
        self._stopping = threading.Event()

    def start(self) -> int:
        """Listens and returns the port. Raises OSError if no port of the range is free."""
        self._listener = _listen(self._address)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), name="bookkeeper-http", daemon=True).start()
        _LIVE.add(self)
        return self.port

    def stop(self) -> None:
        """Closes the port; answers in progress are completed."""
        self._stopping.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            except OSError:
                pass
            listener.close()

    def abandon(self) -> None:
        """In a forked child: closes the child's copy of the socket; the parent keeps its own."""
        self._stopping.set()
        self._lock = threading.Lock()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._stopping.wait(0.05):
                    return
                log.debug("accept: %s", error)
                continue
            with self._lock:
                full = self._open_connections >= MAX_CONNECTIONS
                self._open_connections += 0 if full else 1
            if full:
                self.refused += 1
                sock.close()
                continue
            self._start_thread(sock)

    def _start_thread(self, sock: socket.socket) -> None:
        try:
            threading.Thread(target=self._serve, args=(sock,), name="bookkeeper-http-reply", daemon=True).start()
        except RuntimeError:  # no more threads
            sock.close()
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._open_connections -= 1

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                head = _receive_head(sock, monotonic() + REQUEST_TIMEOUT_S)
                reply = self._reply(head)
                sock.settimeout(REPLY_TIMEOUT_S)
                sock.sendall(reply)
                self.answered += 1
                _drain(sock)
        except OSError as error:
            log.debug("request not answered: %s", error)
        except Exception:
            log.warning("request not answered", exc_info=True)
        finally:
            self._end()

    def _reply(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _message(400, b"not an HTTP/1 request\n")
        method, target = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _message(405, b"use GET\n", ["Allow: GET, HEAD"])
        if target == "/":
            return _message(200, b"variables: /metrics\n", body=method == "GET")
        if target != "/metrics":
            return _message(404, b"use /metrics\n", body=method == "GET")
        headers = dict(_header(line) for line in lines[1:] if ":" in line)
        openmetrics, type_ = content_type(headers.get("accept", ""))
        data = render(self._book.collect(), openmetrics=openmetrics).encode()
        more = [f"Content-Type: {type_}", "Vary: Accept, Accept-Encoding"]
        if len(data) >= MIN_GZIP_BYTES and "gzip" in headers.get("accept-encoding", ""):
            data, more = gzip.compress(data, 1, mtime=0), [*more, "Content-Encoding: gzip"]
        return _message(200, data, more, body=method == "GET")


def serve(address: str, book: ProcessVariables) -> MetricsServer:
    """Start a server for `book`; see bookkeeper.exposition.serve."""
    server = MetricsServer(book, parse_listen_address(address))
    server.start()
    return server


def _listen(where: ListenAddress) -> socket.socket:
    problem: OSError | None = None
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    for port in range(where.first, where.last + 1):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # never SO_REUSEPORT: two would share it
            listener.bind((where.host, port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            problem = error
    raise OSError(f"no free port from {where.first} to {where.last} on {where.host}: {problem}") from problem


def _receive_head(sock: socket.socket, deadline: float) -> bytes:
    """Receive a request up to the empty line. OSError if it is not complete in time."""
    held = b""
    while b"\r\n\r\n" not in held:
        sock.settimeout(max(0.001, deadline - monotonic()))
        part = sock.recv(MAX_HEAD_BYTES)
        if not part or len(held) + len(part) > MAX_HEAD_BYTES or monotonic() > deadline:
            raise OSError(f"incomplete request after {len(held) + len(part)} bytes")
        held += part
    return held.partition(b"\r\n\r\n")[0]


def _drain(sock: socket.socket) -> None:
    """Let the peer close first, so that no reset overtakes the answer."""
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(1.0)
        sock.recv(1)
    except OSError:
        pass


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _message(status: int, data: bytes, headers: Iterable[str] = (), *, body: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *headers, f"Content-Length: {len(data)}", "Connection: close"]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (data if body else b"")


_LIVE: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for server in list(_LIVE):
        server.abandon()
    _LIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
