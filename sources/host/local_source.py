"""Sources inside the agent: the host, and the agent's own variables about its endpoints."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from artimon.model.clock import Clock
from artimon.model.protocols import SinkRefusedError
from sources.base.schedule import Pace, next_tick, sleep_until
from sources.delivery.reading_delivery import ReadingDelivery
from sources.state.series_memory import PlacedColumns, SourceSeries
from sources.state.source_reading import ReadingBuilder, SourceVariable

log = logging.getLogger(__name__)
ReadVariables = Callable[[], Awaitable[Sequence[SourceVariable]]]


class LocalSource:
    """Reads variables once per period, at a fixed phase, and delivers them."""

    def __init__(
        self,
        series: SourceSeries,
        delivery: ReadingDelivery,
        maker: ReadingBuilder,
        read: ReadVariables,
        labels: Mapping[str, str],
    ) -> None:
        self._series, self._delivery, self._maker, self._read = series, delivery, maker, read
        self._labels = labels
        self._placed: PlacedColumns | None = None

    async def run(self, clock: Clock, pace: Pace, not_before_ms: int = 0) -> None:
        """Poll until cancelled. A failed poll is counted and does not stop the loop."""
        tick = next_tick(max(clock.now_ms(), not_before_ms), *pace(), self._series.last_poll_ms)
        while True:
            await sleep_until(tick, clock, lambda: 3 * pace()[1])
            await self._poll_safely()
            tick = next_tick(clock.now_ms(), *pace(), self._series.last_poll_ms)

    async def poll(self) -> int:
        """Read and deliver once; return the samples accepted. Their time is taken after the read."""
        variables = await self._read()
        reading = self._maker.make(variables, self._delivery.clock.now_ms())
        if self._placed is None or self._placed.schema_id != reading.schema.id:
            self._placed = await self._delivery.place(self._series, reading, self._labels)
        return await self._delivery.send(self._series, reading, self._placed)

    async def _poll_safely(self) -> None:
        about = f"local/{self._series.name}"
        try:
            await self.poll()
            self._delivery.figures.set_problem(about, "")
        except SinkRefusedError:
            pass
        except Exception as error:  # an unexpected format in /proc must not end the source
            log.exception("%s", self._series.name)
            self._delivery.figures.note_internal_error(about, self._series.name, error)
