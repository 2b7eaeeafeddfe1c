"""Lines over TCP, as `nc` sends them."""

from __future__ import annotations

from pydantic import Field

from artimon.model.event import MAX_BODY_BYTES
from pipeline.flows.context import Context
from pipeline.flows.event import Event
from pipeline.flows.options import ServerOptions
from pipeline.flows.registry import ADDRESS, Component
from pipeline.flows.sources.byte_server import ByteServer
from pipeline.flows.sources.event_sender import EventSender
from pipeline.flows.sources.line_splitter import split_lines
from pipeline.flows.spi import Figures, Put

_MAX_LINES = 1_000


class NetcatOptions(ServerOptions):
    """`answer`: reply `OK` to each line that the flow has, otherwise `full: …`, `bad: …` or `failed: …`; without it a
    sender is held back until there is room. `line_bytes`: longer lines are cut; empty lines are left out, and get no
    answer."""

    answer: bool = False
    line_bytes: int = Field(default=MAX_BODY_BYTES, ge=1, le=MAX_BODY_BYTES)
    headers: dict[str, str] = Field(default_factory=dict)


class NetcatSource:
    """Event-driven. Without `answer` a sender that is cut off does not know which lines were accepted."""

    def __init__(self, options: NetcatOptions, context: Context) -> None:
        self._options = options
        self._sender = EventSender(context.clock)
        self._server = ByteServer(options, self._consume, context.clock, 2 * options.line_bytes + READ_AHEAD_BYTES)

    @property
    def port(self) -> int:
        return self._server.port

    def start(self, put: Put) -> None:
        """Raises OSError if the port is taken."""
        self._sender.open(put)
        self._server.start()

    def stop(self, deadline_s: float) -> None:
        self._sender.close()
        self._server.stop(deadline_s)

    def figures(self) -> Figures:
        return {**self._server.figures(), **self._sender.figures()}

    def _consume(self, data: bytes, more: bool) -> tuple[int, bytes]:
        used, lines = split_lines(data, self._options.line_bytes, not more, _MAX_LINES)
        events = [Event(self._options.headers, line) for line in lines]
        if not self._options.answer:
            self._sender.put_with_retry(events)
            return used, b""
        reason = self._sender.try_put(events)
        answer = reason.splitlines()[0].encode() if reason else b"OK"
        return used, (answer + b"\n") * len(lines)


READ_AHEAD_BYTES = 64 * 1024
"""Bytes beyond a line that may come in one read."""


NETCAT = Component("netcat", NetcatOptions, NetcatSource, outside=ADDRESS)
