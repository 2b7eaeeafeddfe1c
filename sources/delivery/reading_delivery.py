"""Delivery of a reading to the sink: prepare it, have it accepted, commit it to the memory of the source."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from artimon.model.clock import Clock
from artimon.model.protocols import SinkRefusedError
from sources.delivery.commit_group import AcceptSink
from sources.delivery.source_counts import SourceCounts
from sources.state.relabel import RelabelRegistry, RelabelRules
from sources.state.retention_rules import RetentionDivider
from sources.state.schema_binding import bind_schema
from sources.state.series_memory import PlacedColumns, PreparedPoll, SourceSeries
from sources.state.source_reading import Reading
from sources.state.state_store import SourceStateStore

log = logging.getLogger(__name__)


class ReadingDelivery:
    """Path to the log, shared by all pollers of an agent."""

    def __init__(
        self,
        sink: AcceptSink,
        store: SourceStateStore,
        figures: SourceCounts,
        clock: Clock,
        rules: RelabelRegistry | None = None,
        keeping: RetentionDivider | None = None,
    ) -> None:
        self.sink, self.store, self.figures, self.clock = sink, store, figures, clock
        self.rules = rules or RelabelRegistry()
        self.divider = keeping or RetentionDivider()

    async def place(
        self, series: SourceSeries, reading: Reading, automatic: Mapping[str, str], own: RelabelRules | None = None
    ) -> PlacedColumns:
        """Assign rows to a schema that is new to the source. Texts and fingerprints are computed in a thread. The `own`
        rules of the source are applied before the global ones."""
        rules = self.rules.for_source(series.name, own)
        bound = await asyncio.to_thread(bind_schema, reading.schema, automatic, rules)
        self.rules.set_counts(series.name, rules, Counter(bound.changed_by_rule))
        placed = series.place(bound, reading.time_ms)
        for problem in placed.problems:
            log.warning("refused: %s", problem)
        self.figures.set_refused(series.name, placed.refused, placed.problems)
        return placed

    async def send(self, series: SourceSeries, reading: Reading, placed: PlacedColumns) -> int:
        """Send a reading; return the number of samples accepted. Raises SinkRefusedError: nothing is kept or
        remembered."""
        async with series.lock:
            prepared = series.prepare(reading, placed)
            await self._accept(series, prepared)
        return prepared.samples

    async def take(self, series: SourceSeries, prepare: Callable[[], PreparedPoll]) -> int:
        """Send the result of `prepare` like `send`, unless it has neither samples nor announcements."""
        async with series.lock:
            prepared = prepare()
            if any(part.blocks or len(part.samples) for part in prepared.polled):
                await self._accept(series, prepared)
        return prepared.samples

    async def end(self, series: SourceSeries, may: Callable[[], bool] = lambda: True) -> None:
        """End every live series of the source, if `may` still returns True once the lock is held. Raises
        SinkRefusedError: nothing was ended."""
        async with series.lock:
            if series.live and may():
                await self._accept(series, series.prepare_end(self.clock.now_ms()))
                self.forget(series)

    def forget(self, series: SourceSeries) -> None:
        """Drop what is counted and cached of a source that has ended."""
        self.rules.forget(series.name)
        self.divider.forget(series.name)

    async def _accept(self, series: SourceSeries, prepared: PreparedPoll) -> None:
        about = f"sink/{series.name}"
        try:
            await self.sink.accept(self.divider.divide(series, prepared.polled))
        except SinkRefusedError as error:
            self.figures.sink_refused += 1
            self.figures.set_problem(about, f"{series.name}: not accepted: {error}")
            raise
        self.figures.set_problem(about, "")
        series.commit(prepared)
        self.figures.samples += prepared.samples
        self.store.touch(series)
