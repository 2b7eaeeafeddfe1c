"""One sender as a source: its samples go to the log once, its series end by its markers or when it is silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from artimon.model.batch import Samples
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin.series_owners import SeriesOwners
from sources.dropin.timed_series import TimedSeries
from sources.receive.received_columns import ReceivedColumns, ReceivedSamples
from sources.state.relabel import RelabelRules
from sources.state.series_memory import SourceSeries, only
from sources.state.start_times import Flags, Ints

META = "sender"
"""Key in the meta of a source: the name of its sender."""
MAX_AGE_MS = 90 * 86_400_000
"""Maximum age of a sample."""
SILENT_MS = 15 * 60_000
"""Time without a sample after which a series has ended."""
REPEATED = frozenset(("out of order", "time taken"))
"""Reasons that are no fault of a request: a sender that got no answer sends again what was taken."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Samples of a body that the log took and that were refused; `fault`: the first reason, "" if there is none."""

    samples: int
    refused: int
    fault: str


class ReceivedSource:
    """Event loop only; bodies are read in threads. `_heard_ms`: time of the last arrival of a sample by row."""

    def __init__(
        self,
        name: str,
        make_reader: Callable[[RelabelRules | None], ReceivedColumns],
        series: SourceSeries,
        owners: SeriesOwners,
        delivery: ReadingDelivery,
    ) -> None:
        """`name`: that of the source, without its host."""
        self.name, self.series, self._delivery = name, series, delivery
        if series.meta != {META: name}:
            series.meta, series.changed = {META: name}, True
        self._rules = delivery.rules.for_source(series.name)
        self._reader = make_reader(self._rules)
        self._series = TimedSeries(series, self._reader, owners, delivery, asyncio.to_thread, MAX_AGE_MS)
        self._heard_ms: Ints = np.full(series.rows.size, delivery.clock.now_ms(), np.int64)
        self._turn = asyncio.Lock()
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        """Refused samples by reason, since the start."""

    async def take(self, body: bytes, form: str) -> Taken:
        """Take a body, in a form that the reader knows. Raises BodyError, and SinkRefusedError: nothing was
        accepted."""
        async with self._turn:
            received = await asyncio.to_thread(self._reader.read, body, form)
            now_ms, columns = self._delivery.clock.now_ms(), received.columns
            row, taken = await self._series.place(columns, now_ms)
            ended, ended_ms = self._ends(received, row)
            self._hear(row[row >= 0], now_ms)
            samples = await self._series.deliver(replace(taken, ended=ended, ended_ms=ended_ms), now_ms)
            self._delivery.rules.set_counts(self.series.name, self._rules, self._reader.changed_by_rule)
            self.accepted += samples
            self.refused.update(columns.rejected.counts)
            faults = {reason: text for reason, text in columns.rejected.examples.items() if reason not in REPEATED}
            self._report(faults)
        refused = sum(columns.rejected.counts[reason] for reason in faults)
        return Taken(samples, refused, next((f"{reason}: {text}" for reason, text in faults.items()), ""))

    async def end_silent(self) -> None:
        """End the series without a sample for SILENT_MS. Raises SinkRefusedError: none was ended."""
        async with self._turn:
            now_ms = self._delivery.clock.now_ms()
            self._hear(np.zeros(0, np.int64), now_ms)
            silent: Flags = self.series.rows.state["live"] & (self._heard_ms <= now_ms - SILENT_MS)
            if bool(silent.any()):
                await self._series.deliver(only(Samples.of(()), np.flatnonzero(silent)), now_ms)
            if not self.series.live:
                self._report({})

    def _ends(self, received: ReceivedSamples, row: Ints) -> tuple[Ints, Ints]:
        """Return the rows that end, and the times of their markers: of live series, later than all their samples.
        `row`: row of each sample."""
        if not len(received.ended):
            return received.ended, received.ended_ms
        newest: dict[int, int] = {}
        known, prints = self.series.rows.by_fingerprint, self._reader.prints
        for at, time_ms in zip(received.ended.tolist(), received.ended_ms.tolist(), strict=True):
            found = known.get(prints[at], -1)
            newest[found] = max(time_ms, newest.get(found, 0))
        newest.pop(-1, None)
        rows = np.array(list(newest), np.int64)
        ended_ms = np.array(list(newest.values()), np.int64)
        state, placed = self.series.rows.state, row >= 0
        last_ms, live = state["last_ms"].copy(), state["live"].copy()
        np.maximum.at(last_ms, row[placed], received.columns.time_ms[placed])
        live[row[placed]] = True
        ends = live[rows] & (ended_ms > last_ms[rows])
        return rows[ends], ended_ms[ends]

    def _hear(self, row: Ints, now_ms: int) -> None:
        more = self.series.rows.size - len(self._heard_ms)
        if more:
            self._heard_ms = np.concatenate([self._heard_ms, np.full(more, now_ms, np.int64)])
        self._heard_ms[row] = now_ms

    @property
    def _about(self) -> str:
        return f"received {self.name}"

    def _report(self, faults: Mapping[str, str]) -> None:
        """Report the faults of the last body, an example by reason."""
        texts = tuple(f"{self._about}: {reason}: {text}" for reason, text in faults.items())
        counts = Counter({reason: self.refused[reason] for reason in faults})
        self._delivery.figures.set_refused(self._about, counts, texts)
