"""One sender of a receiver, with a manual clock and a sink that keeps what it accepts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_counts import SourceCounts
from sources.dropin.series_owners import SeriesOwners
from sources.receive.received_columns import ReceivedColumns, ReceivedSamples
from sources.receive.received_source import ReceivedSource
from sources.state.relabel import RelabelRegistry, RelabelRule, RelabelRules
from sources.state.state_store import SourceStateStore
from tests.sources.helpers import KeepingSink
from tests.sources.receive.bodies import request_1

T = 1_800_000_000_000
MINUTE = 60_000


class Sender:
    """A source of a sender; `restart` continues from the state on disk, or from the log alone."""

    def __init__(
        self,
        folder: Path,
        make_reader: Callable[[RelabelRules | None], ReceivedColumns],
        rules: Sequence[RelabelRule] = (),
        max_series: int = 1_000,
    ) -> None:
        self.folder, self.clock, self.sink, self._max = folder, ManualClock(T), KeepingSink(), max_series
        self._make_reader, self._rules = make_reader, rules
        self.folder.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        self.figures = SourceCounts()
        self.store = SourceStateStore(self.folder, self._max)
        self.store.load(self.sink.log, self.clock.now_ms())
        delivery = ReadingDelivery(self.sink, self.store, self.figures, self.clock, RelabelRegistry(self._rules))
        series = self.store.get("received/h/default")
        self.source = ReceivedSource("received/default", self._make_reader, series, SeriesOwners(), delivery)

    async def restart(self, saved: bool) -> None:
        if saved:
            await self.store.flush()
            self.sink.log = ()
        else:
            self.sink.log = tuple(self.sink.accepted)
        self.start()

    async def take(self, *parts: bytes) -> tuple[int, str]:
        """Take parts of remote write 1.0."""
        return await self.take_body(request_1(*parts), "1")

    async def take_body(self, body: bytes, form: str) -> tuple[int, str]:
        taken = await self.source.take(body, form)
        return taken.samples, taken.fault

    def rows(self) -> list[tuple[str, int, object]]:
        return [(text, time_ms, value) for text, time_ms, _, value in self.sink.samples()]

    def values(self) -> dict[str, object]:
        """Return the newest value of each series."""
        return {text: value for text, _, value in self.rows()}

    def kinds(self) -> dict[str, tuple[Kind, str, str]]:
        infos = [one for polled in self.sink.accepted for block in polled.blocks for one in block.series]
        return {one.text: (one.kind, one.help, one.unit) for one in infos}


def run(test: Callable[[Sender], Awaitable[None]], make: Callable[[], Sender]) -> None:
    """Run a test with a sender, in an event loop."""

    async def whole() -> None:
        await test(make())

    asyncio.run(whole())


def told(received: ReceivedSamples, reader: ReceivedColumns) -> object:
    """Return what a reader read, in an order that does not depend on how it did so."""
    columns = received.columns
    found = (columns.column, columns.time_ms, columns.cell, columns.line, columns.type, columns.birth_ms, columns.delta)
    samples = zip(*(one.tolist() for one in found if one is not None), strict=True)
    ends = zip(received.ended.tolist(), received.ended_ms.tolist(), strict=True)
    return (
        sorted((reader.texts[at], *rest) for at, *rest in samples),
        sorted((reader.texts[at], time_ms) for at, time_ms in ends),
        columns.rejected.counts,
    )
