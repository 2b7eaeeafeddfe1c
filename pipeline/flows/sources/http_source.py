"""Events by HTTP: `POST /` with JSON, JSON lines or plain lines."""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

from pydantic import Field

from artimon.model.event import MAX_BODY_BYTES, EventError
from artimon.runtime.exposure import family_of
from pipeline.collector.collector_service import naming_address
from pipeline.flows.context import Context
from pipeline.flows.encodings import JsonLinesCodec
from pipeline.flows.event import Event
from pipeline.flows.options import ServerOptions
from pipeline.flows.registry import ADDRESS, Component
from pipeline.flows.sources.event_sender import EventSender
from pipeline.flows.sources.line_splitter import split_lines
from pipeline.flows.spi import Figures, Put

log = logging.getLogger(__name__)

_JSON_LINES = JsonLinesCodec()
_BODY_LEFT = (HTTPStatus.LENGTH_REQUIRED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.REQUEST_TIMEOUT)
"""Answers to requests whose body was not read to its end."""
MAX_EVENTS = 100_000
"""Most events of one request: limits the memory for a small body of many empty events."""


class HttpOptions(ServerOptions):
    """`bytes`: longest request. `idle_s`: timeout of a silent connection; `request_s`: timeout of receiving a request,
    in seconds."""

    connections: int = Field(default=64, ge=1, le=1_000)
    idle_s: float = Field(default=30.0, gt=0, le=600)
    request_s: float = Field(default=60.0, gt=0, le=600)
    bytes: int = Field(default=8 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024)


class HttpSource:
    """Event-driven. 200: the flow has all events, with its guarantee; 400: none, the request is wrong; 413: none, too
    long; 503 with `Retry-After`: none, send it again later.

    `application/json`: a list of `{"headers": {…}, "body": "text"}` (or `base64` for bytes); `application/x-ndjson`:
    one such object a line; `text/plain`: each line is a body."""

    def __init__(self, options: HttpOptions, context: Context) -> None:
        self._options = options
        self._sender = EventSender(context.clock)
        self._server: _BoundedServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return int(self._server.server_address[1]) if self._server is not None else 0

    def start(self, put: Put) -> None:
        """Raises OSError if the port is taken."""
        options = self._options
        self._sender.open(put)
        handler = type("Handler", (_Handler,), {"source": self, "timeout": options.idle_s})
        with naming_address("source http", options.host, options.port):
            self._server = _BoundedServer((options.host, options.port), handler, options.connections)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="http", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        self._sender.close()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join(deadline_s / 2)
            self._server.server_close()
            self._server.close_connections(deadline_s / 2)
            self._server = None

    def figures(self) -> Figures:
        return {"port": self.port, **self._sender.figures()}

    def put_request(self, kind: str, data: bytes) -> tuple[HTTPStatus, str]:
        """Put the events of a request; return status and text of the answer."""
        try:
            events = _events(kind, data)
        except (ValueError, EventError, RecursionError) as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        if events is None:
            allowed = "application/json, application/x-ndjson or text/plain"
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type {kind!r} is not known: send {allowed}"
        reason = self._sender.try_put(events)
        if not reason:
            return HTTPStatus.OK, json.dumps({"events": len(events)})
        bad = reason.startswith("bad:")
        return (HTTPStatus.BAD_REQUEST if bad else HTTPStatus.SERVICE_UNAVAILABLE), reason

    @property
    def request_s(self) -> float:
        return self._options.request_s

    @property
    def most_bytes(self) -> int:
        return self._options.bytes


class _BoundedServer(ThreadingHTTPServer):
    """HTTP server with a limit of connections."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: Any, most: int) -> None:
        self._most, self._open = most, set[socket.socket]()
        self._changed = threading.Condition()
        self.address_family = family_of(address[0])
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind like any TCP server, without a DNS lookup of the own name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def close_connections(self, deadline_s: float) -> None:
        """Close the open connections for reading, and wait for their requests."""
        with self._changed:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RD)  # a pending answer is still sent
                except OSError:
                    pass
            self._changed.wait_for(lambda: not self._open, deadline_s)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            full = len(self._open) >= self._most
            if not full:
                self._open.add(request)
        if full:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no threads left until others end
            self._is_disconnected(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._is_disconnected(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log errors, except for peers that disconnect."""
        if not isinstance(sys.exception(), OSError):
            log.exception("http: request of %s", client_address)

    def _is_disconnected(self, request: Any) -> None:
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    source: HttpSource

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 16) or "Transfer-Encoding" in self.headers:
            self._answer(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length")
        elif int(length) > self.source.most_bytes:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {self.source.most_bytes} bytes a request")
        else:
            kind = self.headers.get("Content-Type", "").split(";")[0].strip().lower()
            data = self._body(int(length))
            if len(data) < int(length):  # the client disconnected or was too slow: discard the incomplete request
                self._answer(HTTPStatus.REQUEST_TIMEOUT, f"{len(data)} of {length} bytes received; nothing was kept")
            else:
                self._answer(*self.source.put_request(kind, data))

    def _body(self, length: int) -> bytes:
        until, parts, left = monotonic() + self.source.request_s, [], length
        while left and monotonic() < until and (data := self.rfile.read1(min(left, 64 * 1024))):
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the flow's figures count requests."""

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == HTTPStatus.OK else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        if status in _BODY_LEFT:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _events(kind: str, data: bytes) -> Sequence[Event] | None:
    """Return the events of a body, None for an unknown content type. Raises ValueError."""
    if kind == "application/x-ndjson":
        _check_count(data.count(b"\n"))
        return _JSON_LINES.decode(data)
    if kind == "text/plain":
        lines = split_lines(data, MAX_BODY_BYTES, True, MAX_EVENTS + 1)[1]
        _check_count(len(lines))
        return [Event({}, line) for line in lines]
    if kind != "application/json":
        return None
    found = json.loads(data)
    if not isinstance(found, list):
        raise ValueError('send a list of {"headers": {}, "body": ""}')
    _check_count(len(found))
    return [event for one in found for event in _JSON_LINES.decode(json.dumps(one).encode())]


def _check_count(count: int) -> None:
    if count > MAX_EVENTS:
        raise ValueError(f"more than {MAX_EVENTS} events: send them in several requests")


HTTP = Component("http", HttpOptions, HttpSource, outside=ADDRESS)
