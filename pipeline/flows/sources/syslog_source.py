"""Syslog over UDP and TCP: RFC 5424, and the older RFC 3164 format that most programs still write."""

from __future__ import annotations

import re
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from pydantic import Field

from artimon.model.event import MAX_BODY_BYTES, EventError, check_limits
from artimon.runtime.exposure import family_of
from pipeline.collector.collector_service import naming_address
from pipeline.flows.context import Context
from pipeline.flows.event import Event
from pipeline.flows.options import ServerOptions
from pipeline.flows.registry import ADDRESS, Component
from pipeline.flows.sources.byte_server import ByteServer
from pipeline.flows.sources.event_sender import EventSender
from pipeline.flows.spi import Figures, Put

_NAMED = ("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp")
FACILITIES = (*_NAMED, "ntp", "audit", "alert", "clock", *(f"local{n}" for n in range(8)))
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PRIORITY = re.compile(rb"<(\d{1,3})>")
_NEW = re.compile(rb"1 (\S+) (\S+) (\S+) (\S+) (\S+) ")
_OLD = re.compile(rb"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S+) ")
_TAG = re.compile(rb"([^\s:\[]{1,64})(?:\[(\d+)\])?: ?")
_STRUCTURED = re.compile(rb'(?:\[[^\s="\]]+(?: [^\s="\]]+="(?:[^"\\\]]|\\.)*")*\])+|-')
_COUNT = re.compile(rb"(\d{1,7}) ")
_DATAGRAM = 65_535
_RECEIVE_BUFFER = 4 * 1024 * 1024
_RXQ_OVFL = 40
"""Linux socket option: each datagram carries the count of earlier ones dropped by the kernel."""
_MAX_MESSAGES = 1_000
_RECEIVE_TIMEOUT_S = 0.5
_ENDS = re.compile(rb"[\n\0]")


class SyslogOptions(ServerOptions):
    """`transport`: `udp`, or `tcp` (messages with a length prefix, or one a line). `bytes`: longer messages are cut;
    over TCP one longer than four times this closes its connection."""

    transport: Literal["udp", "tcp"] = "udp"
    bytes: int = Field(default=64 * 1024, ge=480, le=MAX_BODY_BYTES)


class SyslogSource:
    """Event-driven. Headers: facility, severity, and if present host, app, process, id, time (as written), time_ms,
    data; the body is the message. Other input is passed whole, with the header `bad`.

    Over UDP a message without room is lost and counted; over TCP its sender is held back."""

    def __init__(self, options: SyslogOptions, context: Context) -> None:
        self._options, self._clock = options, context.clock
        self._sender = EventSender(context.clock)
        self._udp: socket.socket | None = None
        self._port = self._overflows = 0
        self._thread: threading.Thread | None = None
        self._server = ByteServer(options, self._consume, context.clock, 4 * options.bytes + _DATAGRAM)

    @property
    def port(self) -> int:
        return self._port or self._server.port

    def start(self, put: Put) -> None:
        """Raises OSError if the port is taken."""
        self._sender.open(put)
        if self._options.transport == "tcp":
            self._server.start()
            return
        host, port = self._options.host, self._options.port
        self._udp = socket.socket(family_of(host), socket.SOCK_DGRAM)
        try:
            with naming_address("source syslog", host, port):
                self._udp.bind((host, port))
        except OSError:
            self._udp.close()
            self._udp = None
            raise
        self._port = int(self._udp.getsockname()[1])
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._udp.setsockopt(socket.SOL_SOCKET, _RXQ_OVFL, 1)
        self._udp.setblocking(False)
        self._thread = threading.Thread(target=self._datagrams, args=(self._udp,), name="syslog", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        self._sender.close()
        self._server.stop(deadline_s)
        if self._thread is not None:
            self._thread.join(deadline_s)
        if self._udp is not None:
            self._udp.close()
            self._udp, self._port = None, 0

    def figures(self) -> Figures:
        return {**self._server.figures(), **self._sender.figures(), "port": self.port}

    def _datagrams(self, sock: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            while not self._sender.is_stopping.is_set():
                if not selector.select(_RECEIVE_TIMEOUT_S):
                    continue
                try:
                    events = self._receive(sock)
                except OSError:  # such as no memory
                    self._clock.wait(self._sender.is_stopping, 0.1)
                    continue
                if self._sender.try_put(events):
                    self._sender.count("lost", len(events))

    def _receive(self, sock: socket.socket) -> list[Event]:
        """Return all datagrams received so far, as one put, since each may cost an fsync."""
        events: list[Event] = []
        while len(events) < _MAX_MESSAGES:
            try:
                data, more, _, _ = sock.recvmsg(_DATAGRAM, socket.CMSG_SPACE(4))
            except BlockingIOError:
                break
            for level, kind, value in more:
                if (level, kind) == (socket.SOL_SOCKET, _RXQ_OVFL):
                    self._count_dropped(int.from_bytes(value[:4], sys.byteorder))
            if data:
                events.append(parse_message(data[: self._options.bytes]))
        return events

    def _count_dropped(self, total: int) -> None:
        if new := (total - self._overflows) & 0xFFFFFFFF:
            self._sender.count("lost", new)
            self._overflows = total

    def _consume(self, data: bytes, more: bool) -> tuple[int, bytes]:
        used = 0
        events = []
        for end, message in split_frames(data, self._options.bytes, not more):
            used = end
            events.append(parse_message(message))
            if len(events) >= _MAX_MESSAGES:
                break
        self._sender.put_with_retry(events)
        return used, b""


def split_frames(data: bytes, most: int, final: bool) -> Iterator[tuple[int, bytes]]:
    """Yield (end, message) of each complete message: with a length prefix if it begins with a number, else up to a
    newline or NUL (RFC 6587). A counted message longer than `most` is cut. Raises ValueError above four times that."""
    at = 0
    while at < len(data):
        counted = _COUNT.match(data, at)
        if counted:
            length = int(counted[1])
            if length > 4 * most:
                raise ValueError(f"a syslog message of {length} bytes: at most {most}")
            end = counted.end() + length
            if end > len(data) and not final:
                return
            if length:
                yield min(end, len(data)), data[counted.end() : end][:most]
            at = end
            continue
        found = _ENDS.search(data, at)
        if found is None and not final:
            return
        end = found.start() if found else len(data)
        if message := data[at:end].rstrip(b"\r")[:most]:
            yield min(end + 1, len(data)), message
        at = end + 1


def parse_message(data: bytes) -> Event:
    """Parse one message. Never raises: other input, or headers beyond the limits of an event, give the whole text."""
    data = data.rstrip(b"\r\n\0")
    event = _parsed(data)
    try:
        check_limits(event)
    except EventError as error:
        return Event({"bad": str(error)}, data)
    return event


def _parsed(data: bytes) -> Event:
    priority = _PRIORITY.match(data)
    number = int(priority[1]) if priority else 999
    if priority is None or number >= 8 * len(FACILITIES):
        return Event({"bad": "no syslog priority"}, data)
    headers = {"facility": FACILITIES[number // 8], "severity": SEVERITIES[number % 8]}
    rest = data[priority.end() :]
    if new := _NEW.match(rest):
        _add_header_fields(headers, time=new[1], host=new[2], app=new[3], process=new[4], id=new[5])
        _time(headers)
        return Event(headers, _structured(headers, rest[new.end() :]))
    if old := _OLD.match(rest):
        _add_header_fields(headers, time=old[1], host=old[2])
        rest = rest[old.end() :]
    if tag := _TAG.match(rest):
        _add_header_fields(headers, app=tag[1], process=tag[2] or b"-")
        rest = rest[tag.end() :]
    return Event(headers, rest)


def _add_header_fields(headers: dict[str, str], **parts: bytes) -> None:
    headers.update({name: text.decode(errors="replace") for name, text in parts.items() if text != b"-"})


def _structured(headers: dict[str, str], rest: bytes) -> bytes:
    found = _STRUCTURED.match(rest)
    if found is None:
        return rest
    _add_header_fields(headers, data=found[0])
    return rest[found.end() :].removeprefix(b" ").removeprefix(b"\xef\xbb\xbf")


def _time(headers: dict[str, str]) -> None:
    try:
        headers["time_ms"] = str(round(datetime.fromisoformat(headers.get("time", "")).timestamp() * 1000))
    except ValueError:
        pass


SYSLOG = Component("syslog", SyslogOptions, SyslogSource, outside=ADDRESS)
