"""One drop-in file as a source: selects new samples, detects ended series and refuses invalid lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from artimon.model.batch import Samples
from sources.base.source_errors import RejectCounts
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin import line_start_times as rules
from sources.dropin.file_parser import LineColumns, LineReader
from sources.dropin.folder_files import BytesReader, FileLimits, OpenFile, Signature, signature_of
from sources.dropin.series_owners import SeriesOwners
from sources.dropin.timed_series import TWICE, InThread, TimedSeries
from sources.state.series_memory import SourceSeries, only
from sources.state.start_times import Flags, Ints

END_AFTER_POLLS = 5
"""Consecutive polls without a series after which it has ended."""
MIN_FILE_AGE_MS = 2_000
"""Files younger than this (ms) are read at every poll: two changes within one clock tick have one signature."""
_WAITING = ("future", "half-written")
"""Reasons of refusal that may no longer hold when the same file is read again."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """Content of a path, read in a thread; `columns` is None if the file is unchanged since the read before."""

    signature: Signature
    mtime_ms: int
    columns: LineColumns | None


class DropinFile:
    """Threads: `read_if_changed` and `parse_output` run in a thread, the rest in the event loop; never two at once.

    Arrays by row of the source: `_absent` counts the consecutive polls without a live series, `_present` marks the
    series of the last read."""

    def __init__(
        self,
        path: Path,
        series: SourceSeries,
        automatic: Mapping[str, str],
        limits: FileLimits,
        owners: SeriesOwners,
        delivery: ReadingDelivery,
        in_thread: InThread,
    ) -> None:
        self.path, self.series, self._delivery = path, series, delivery
        self._rules = delivery.rules.for_source(series.name)
        self._reader = LineReader(automatic, limits, self._rules)
        self._lines = TimedSeries(series, self._reader, owners, delivery, in_thread)
        self.mtime_ms: int | None = None
        self.accepted = self.refused = 0
        self._complete: Signature | None = None
        self._counted: Signature | None = None
        self._absent: Ints = np.zeros(0, np.int64)
        self._present: Flags = np.zeros(0, np.bool_)

    # --- in the thread

    def read_if_changed(self) -> FileRead:
        """Read the file unless it is unchanged. Raises FileNotFoundError, FileRefusedError."""
        with closing(OpenFile(self.path)) as file:
            signature, mtime_ms = signature_of(file.stat), file.stat.st_mtime_ns // 1_000_000
            if signature == self._complete:
                return FileRead(signature, mtime_ms, None)
            return FileRead(signature, mtime_ms, self._reader.read(file))

    def parse_output(self, data: bytes, run: int, now_ms: int) -> FileRead:
        """Parse the output of a program like a file. The number `run` distinguishes it from earlier outputs."""
        return FileRead((len(data), run), now_ms, self._reader.read(BytesReader(data)))

    # --- in the event loop

    async def take(self, look: FileRead, tell: Callable[[RejectCounts], None]) -> int:
        """Deliver the new samples of `look` with the ends of missing series, and return the number of samples. Calls
        `tell` with the refusals of a read. Raises SinkRefusedError: nothing was accepted."""
        now_ms, columns = self._delivery.clock.now_ms(), look.columns
        self.mtime_ms = look.mtime_ms
        if columns is None:
            self._miss(~self._pad_arrays())
            return await self._end_missing()
        row, taken = await self._lines.place(columns, now_ms)
        self._mark(row, columns.complete)
        tell(columns.rejected)
        self._delivery.rules.set_counts(self.series.name, self._rules, self._reader.changed_by_rule)
        samples = await self._lines.deliver(replace(taken, ended=self._ended()), now_ms)
        self._record(look, columns, samples, now_ms)
        return samples

    async def _end_missing(self) -> int:
        """End the series that were missing for too long; return 0 samples. Raises SinkRefusedError: none was ended."""
        return await self._lines.deliver(only(Samples.of(()), self._ended()), self._delivery.clock.now_ms())

    def _mark(self, row: Ints, complete: bool) -> None:
        """Mark the series of `row` as present; after a complete read, count the others as missing."""
        present = self._pad_arrays()
        if complete:
            present[:] = False
        present[row[row >= 0]] = True
        self._absent[present] = 0
        if complete:
            self._miss(~present)

    def read_again(self) -> None:
        """Force a read at the next poll, even if the file is unchanged."""
        self._complete = None

    async def mark_missing(self) -> None:
        """Count a poll without the file: all its series are missing. Raises SinkRefusedError: none of them was
        ended."""
        self.read_again()
        self._pad_arrays()[:] = False
        self._miss(~self._present)
        await self._end_missing()

    def _pad_arrays(self) -> Flags:
        more = self.series.rows.size - len(self._absent)
        self._absent = np.concatenate([self._absent, np.zeros(more, np.int64)])
        self._present = np.concatenate([self._present, np.zeros(more, np.bool_)])
        return self._present

    def _miss(self, missing: Flags) -> None:
        self._absent[missing & self.series.rows.state["live"]] += 1

    def _ended(self) -> Ints:
        """Return the rows of live series that were missing at GONE_POLLS consecutive polls."""
        self._pad_arrays()
        return np.flatnonzero(self.series.rows.state["live"] & (self._absent >= END_AFTER_POLLS))

    def _record(self, look: FileRead, columns: LineColumns, samples: int, now_ms: int) -> None:
        """Record that the log accepted the samples of a read."""
        self.accepted += samples
        if columns.complete and not columns.rejected.counts:
            newest = columns.time_ms[columns.time_ms <= now_ms + rules.MAX_AHEAD_MS].max(initial=0)
            self.series.whole_ms = max(self.series.whole_ms, int(newest))
        if self._counted != look.signature:
            self._counted = look.signature
            self.refused += sum(n for reason, n in columns.rejected.counts.items() if reason not in _WAITING)
        final = columns.complete and not {"future", TWICE} & columns.rejected.counts.keys()
        self._complete = look.signature if final and now_ms - look.mtime_ms > MIN_FILE_AGE_MS else None
