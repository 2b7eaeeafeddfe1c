"""Receivers of an agent: their listeners, senders, and figures."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from artimon.runtime.exposure import require_protection
from artimon.runtime.settings import SettingsError
from artimon.runtime.version import missing_requirement
from bookkeeper.rpc.security import Security
from sources.base.schedule import Pace, next_tick, sleep_until
from sources.delivery.reading_delivery import ReadingDelivery
from sources.receive.graphite import GraphiteReader
from sources.receive.http_listener import PROTOCOLS, HttpListener
from sources.receive.line_listener import LineListener
from sources.receive.listener import RETRY_S, Listener, SenderToken
from sources.receive.receive_address import ReceiveAddress, parse_receive_address
from sources.receive.received_source import ReceivedSource
from sources.receive.senders import Senders
from sources.receive.statsd import StatsdReader
from sources.state.source_reading import SourceVariable

log = logging.getLogger(__name__)
READERS = {
    **{name: protocol.make_reader for name, protocol in PROTOCOLS.items()},
    "graphite": GraphiteReader,
    "statsd": StatsdReader,
}
TICK_S = 60.0


class Receiver:
    """Listeners run in threads of their own; what they receive is delivered in the event loop of the agent."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: Path | None,
        security: Security | None,
        delivery: ReadingDelivery,
        pace: Pace,
    ) -> None:
        """`pace`: phase and period of the samples of StatsD. Raises SettingsError for a wrong address or token, and for
        a listener that would accept every client."""
        self._token = None if token is None else SenderToken(token)
        self._security, self._delivery, self._pace = security, delivery, pace
        self._senders = Senders(READERS, delivery)
        self._placement: dict[str, str] = {}
        self._listeners = [self._listener(parse_receive_address(text)) for text in addresses]
        self._reported: dict[str, int] = {}

    def _listener(self, address: ReceiveAddress) -> Listener:
        """Return the listener of an address. Raises SettingsError."""
        asks_token = self._token is not None and (address.protocol == "http" or address.transport == "grpc")
        if not address.is_local and not asks_token:
            if address.transport == "udp":
                raise SettingsError(f"--receive {address}: UDP has no login: listen on 127.0.0.1, or at a unix socket")
            remedy = "give --receive-token, or certificates (docs/security.md)"
            require_protection(f"the receiver {address}", address.host, self._security, insecure=False, remedy=remedy)
        if address.transport == "grpc":
            return _grpc_listener(address, self._senders, self._token, self._security)
        if address.protocol == "http":
            return HttpListener(address, self._senders, self._token, self._security)
        security = self._security if address.transport == "tcp" else None
        return LineListener(address, self._senders, security, self._delivery.clock)

    async def run(self, placement: Mapping[str, str]) -> None:
        """Listen until cancelled; then stop. `placement`: labels of this host, for the agent's own variables."""
        self._placement = dict(placement)
        await self._senders.resume(placement["host"])
        aggregates = self._open_aggregates()
        try:
            async with asyncio.TaskGroup() as tasks:
                for listener in self._listeners:
                    tasks.create_task(self._listen(listener))
                for source in aggregates:
                    tasks.create_task(self._flush_forever(source))
                tasks.create_task(self._watch())
        finally:
            await asyncio.shield(self._stop(aggregates))

    def _open_aggregates(self) -> list[ReceivedSource]:
        """Open the senders of StatsD and give their aggregates to the listeners."""
        opened = {}
        for listener in self._listeners:
            if isinstance(listener, LineListener) and listener.address.protocol == "statsd":
                source = self._senders.open(f"statsd/{listener.address.sender}")
                opened[source.name] = source
                listener.aggregates = _aggregates(source)
        return list(opened.values())

    async def _stop(self, aggregates: Sequence[ReceivedSource]) -> None:
        """Stop listening, then deliver what StatsD has aggregated."""
        await asyncio.gather(*(asyncio.to_thread(listener.stop) for listener in self._listeners))
        for source in aggregates:
            await self._flush(source)

    async def _listen(self, listener: Listener) -> None:
        """Listen once the address is free."""
        about = f"receiver {listener.address}"
        while True:
            try:
                await asyncio.to_thread(listener.start)
            except OSError as problem:
                text = f"--receive {listener.address}: {problem}; trying again"
                self._delivery.figures.set_problem(about, text)
                await asyncio.sleep(RETRY_S)
            else:
                self._delivery.figures.set_problem(about, "")
                log.info("receives at %s", listener.address)
                return

    async def _flush_forever(self, source: ReceivedSource) -> None:
        """Deliver the aggregates of a sender of StatsD once a period."""
        clock = self._delivery.clock
        while True:
            await sleep_until(next_tick(clock.now_ms(), *self._pace()), clock, lambda: 2 * self._pace()[1])
            await self._flush(source)

    async def _flush(self, source: ReceivedSource) -> None:
        try:
            await source.take(b"", str(self._delivery.clock.now_ms()))
        except SinkRefusedError as error:
            log.warning("%s: %s", source.name, error)  # its values are delivered with the next period
        else:
            _aggregates(source).settle()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._senders.end_silent()
            for listener in self._listeners:
                self._report(listener)

    def _report(self, listener: Listener) -> None:
        """Report what a listener dropped since the last report."""
        key, total = str(listener.address), listener.dropped.total()
        new = total - self._reported.get(key, 0)
        self._reported[key] = total
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in listener.dropped.items())
        text = f"--receive {key}: {new:,} dropped in the last minute (since the start: {reasons})" if new else ""
        self._delivery.figures.set_problem(f"dropped {key}", text)

    def variables(self) -> Iterator[SourceVariable]:
        """Yield the agent's own variables about senders and listeners."""
        yield from self._senders.variables(self._placement)
        answers: Counter[str] = sum((one.answers for one in self._listeners), Counter())
        for status, count in answers.items():
            labels = {**self._placement, "code": status}
            text = "Requests answered, by status"
            yield SourceVariable("artimon.receive.requests", labels, count, Kind.COUNTER, "", text)
        for listener in self._listeners:
            for reason, count in list(listener.dropped.items()):
                labels = {**self._placement, "listener": str(listener.address), "reason": reason}
                text = "Datagrams, connections and lines that a listener dropped before they were read"
                yield SourceVariable("artimon.receive.dropped", labels, count, Kind.COUNTER, "", text)


def _grpc_listener(
    address: ReceiveAddress, senders: Senders, token: SenderToken | None, security: Security | None
) -> Listener:
    """Return the gRPC listener of an address. Raises SettingsError."""
    try:
        from sources.receive.grpc_listener import GrpcListener
    except ImportError as error:
        if not (wanted := missing_requirement(error)):
            raise
        raise SettingsError(f"--receive {address}: gRPC needs `pip install '{wanted}'`") from None
    return GrpcListener(address, senders, token, security)


def _aggregates(source: ReceivedSource) -> StatsdReader:
    reader = source.reader
    if not isinstance(reader, StatsdReader):
        raise TypeError(f"{source.name} is not a source of StatsD")
    return reader
