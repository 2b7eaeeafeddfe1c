"""One sender as a source: its samples go to the log once, its series end by its markers or when it is silent."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from artimon.model.batch import Samples
from artimon.model.protocols import SinkRefusedError
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin.series_owners import SeriesOwners
from sources.dropin.timed_series import PlacedSamples, TimedSeries
from sources.receive.received_columns import ReceivedColumns, ReceivedSamples, join_samples
from sources.state.relabel import RelabelRules
from sources.state.series_memory import SelectedSamples, SourceSeries, only
from sources.state.start_times import Flags, Ints

META = "sender"
"""Key in the meta of a source: the name of its sender."""
MAX_AGE_MS = 90 * 86_400_000
"""Maximum age of a sample."""
SILENT_MS = 15 * 60_000
"""Time without a sample after which a series has ended."""
REPEATED = frozenset(("out of order", "time taken"))
"""Reasons that are no fault of a request: a sender that got no answer sends again what was taken."""


MAX_GROUP_SAMPLES = 20_000
"""Samples of bodies that are taken together; a single body may have more."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Samples of a body that the log took and that were refused; `fault`: the first reason, "" if there is none."""

    samples: int
    refused: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Body:
    content: bytes
    form: str
    taken: asyncio.Future[Taken]


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
        self.reader = make_reader(self._rules)
        self.reader.resume(one.text for one in series.rows.descriptions)
        in_thread = asyncio.to_thread
        self._series = TimedSeries(series, self.reader, owners, delivery, in_thread, MAX_AGE_MS, rereads=False)
        self._heard_ms: Ints = np.full(series.rows.size, delivery.clock.now_ms(), np.int64)
        self._turn = asyncio.Lock()
        self._waiting: deque[_Body] = deque()
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        """Refused samples by reason, since the start."""

    async def take(self, body: bytes, form: str) -> Taken:
        """Take a body, in a form that the reader knows. Raises BodyError, and SinkRefusedError: nothing was
        accepted. Bodies that wait for one that is being taken are taken together."""
        mine = _Body(body, form, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        async with self._turn:
            if not mine.taken.done():
                await self._take_group()
        return await mine.taken

    async def _take_group(self) -> None:
        """Take the first body that waits and some of the others."""
        self.reader.trim()
        read: list[tuple[_Body, ReceivedSamples]] = []
        try:
            joined, placed = await asyncio.to_thread(self._read, read)
            if joined is None or len(read) < 2 or not await self._take_together(read, joined, placed):
                for body, received in read:
                    body.taken.set_result(await self._take_one(received, placed if received is joined else None))
        except BaseException as error:
            reason = error if isinstance(error, Exception) else SinkRefusedError("the agent is stopping")
            for body, _ in read:
                if not body.taken.done():
                    body.taken.set_exception(reason)
                    body.taken.exception()  # its sender may have left
            if not isinstance(error, Exception):
                raise

    def _read(self, read: list[tuple[_Body, ReceivedSamples]]) -> tuple[ReceivedSamples | None, PlacedSamples | None]:
        """Read bodies that wait; runs in a thread. Those that cannot be read have their error. Return the samples of
        the others as those of one body, unless a body has faults, and place them if their series are known."""
        samples = 0
        while self._waiting and samples < MAX_GROUP_SAMPLES:
            body = self._waiting.popleft()
            try:
                received = self.reader.read(body.content, body.form)
            except Exception as problem:
                body.taken.get_loop().call_soon_threadsafe(body.taken.set_exception, problem)
            else:
                read.append((body, received))
                samples += len(received.columns)
        bodies = [received for _, received in read]
        if not bodies or any(one.has_faults for one in bodies):
            return None, None
        joined = bodies[0] if len(bodies) == 1 else join_samples(bodies)
        return joined, self._series.place_known(joined.columns, self._delivery.clock.now_ms())

    async def _take_together(
        self, read: list[tuple[_Body, ReceivedSamples]], joined: ReceivedSamples, placed: PlacedSamples | None
    ) -> bool:
        """Take several bodies if every sample in them can be taken; else return False, and nothing was taken."""
        now_ms = self._delivery.clock.now_ms()
        row, taken = placed or await self._series.place(joined.columns, now_ms)
        if joined.columns.rejected.counts or len(taken.samples) < len(joined.columns):
            return False
        await self._deliver(row, taken, now_ms)
        self._report({})
        for body, received in read:
            body.taken.set_result(Taken(len(received.columns)))
        return True

    async def _take_one(self, received: ReceivedSamples, placed: PlacedSamples | None) -> Taken:
        now_ms, columns = self._delivery.clock.now_ms(), received.columns
        row, taken = placed or await self._series.place(columns, now_ms)
        ended, ended_ms = self._ends(received, row)
        samples = await self._deliver(row, replace(taken, ended=ended, ended_ms=ended_ms), now_ms)
        self.refused.update(columns.rejected.counts)
        faults = {reason: text for reason, text in columns.rejected.examples.items() if reason not in REPEATED}
        self._report(faults)
        refused = sum(columns.rejected.counts[reason] for reason in faults)
        return Taken(samples, refused, next((f"{reason}: {text}" for reason, text in faults.items()), ""))

    async def _deliver(self, row: Ints, taken: SelectedSamples, now_ms: int) -> int:
        self._hear(row[row >= 0], now_ms)
        samples = await self._series.deliver(taken, now_ms)
        self._delivery.rules.set_counts(self.series.name, self._rules, self.reader.changed_by_rule)
        self.accepted += samples
        return samples

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
        known, prints = self.series.rows.by_fingerprint, self.reader.prints
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
