"""Senders of all receivers of an agent. Each is a source of its own, `<protocol>/<host>/<sender>`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from sources.base.source_errors import SourceError
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin.series_owners import SeriesOwners
from sources.receive.received_columns import ReceivedColumns
from sources.receive.received_source import META, ReceivedSource, Taken
from sources.state.relabel import RelabelRules
from sources.state.source_reading import SourceVariable

log = logging.getLogger(__name__)
MAX_SENDERS = 64
MakeReader = Callable[[RelabelRules | None], ReceivedColumns]


class SendersError(SourceError):
    """Error: there are too many senders."""


class Senders:
    """Event loop of the agent, but `deliver`. `readers`: protocol -> reader of the bodies of a sender."""

    def __init__(self, readers: Mapping[str, MakeReader], delivery: ReadingDelivery) -> None:
        self._readers, self._delivery = readers, delivery
        self._loop: asyncio.AbstractEventLoop | None = None
        self._host = ""
        self._owners = SeriesOwners()
        self._by_name: dict[str, ReceivedSource] = {}

    async def resume(self, host: str) -> None:
        """Begin, with the senders of earlier runs."""
        self._host = host
        for series in list(self._delivery.store):
            name = str(series.meta.get(META, ""))
            if name.partition("/")[0] in self._readers and series.name == self._source(name):
                self.open(name)
                await asyncio.sleep(0)
        self._loop = asyncio.get_running_loop()

    async def deliver(self, name: str, body: bytes, form: str) -> Taken:
        """Take a body of `<protocol>/<sender>`; any event loop. Raises BodyError, SendersError, SinkRefusedError."""
        if self._loop is None:
            raise SinkRefusedError("the agent is starting")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._take(name, body, form), self._loop))

    async def _take(self, name: str, body: bytes, form: str) -> Taken:
        return await self.open(name).take(body, form)

    def open(self, name: str) -> ReceivedSource:
        """Return the source `<protocol>/<sender>`. Raises SendersError if there are too many."""
        found = self._by_name.get(name)
        if found is None:
            if len(self._by_name) >= MAX_SENDERS:
                raise SendersError(f"more than {MAX_SENDERS} senders")
            series = self._delivery.store.get(self._source(name))
            reader = self._readers[name.partition("/")[0]]
            found = self._by_name[name] = ReceivedSource(name, reader, series, self._owners, self._delivery)
        return found

    async def end_silent(self) -> None:
        """End the series of all senders that are silent."""
        for sender in list(self._by_name.values()):
            try:
                await sender.end_silent()
            except SinkRefusedError as error:
                log.warning("%s: %s", sender.name, error)
        self._owners.trim(sender.series for sender in self._by_name.values())

    def variables(self, placement: Mapping[str, str]) -> Iterator[SourceVariable]:
        """Yield the agent's own variables about each sender."""
        for name, sender in self._by_name.items():
            labels = {**placement, "sender": name}
            text = "Samples that a sender sent and the log took"
            yield SourceVariable("artimon.receive.samples.accepted", labels, sender.accepted, Kind.COUNTER, "", text)
            text = "Samples that were not taken; out of order and time taken are mostly repeats"
            for reason, count in sender.refused.items():
                of_reason = {**labels, "reason": reason}
                yield SourceVariable("artimon.receive.samples.refused", of_reason, count, Kind.COUNTER, "", text)

    def _source(self, name: str) -> str:
        protocol, _, sender = name.partition("/")
        return f"{protocol}/{self._host}/{sender}"
