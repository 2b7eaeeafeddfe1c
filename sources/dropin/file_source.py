"""One drop-in file as a source: selects new samples, detects ended series and refuses invalid lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.model.batch import Samples
from artimon.model.values import Kind, ValueType
from sources.base.source_errors import RejectCounts
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin import line_start_times as rules
from sources.dropin.file_parser import FileMetadata, LineColumns, LineReader
from sources.dropin.folder_files import BytesReader, FileLimits, OpenFile, Signature, signature_of
from sources.dropin.line_start_times import LastSamples, PlacedLines
from sources.dropin.series_owners import SeriesOwners
from sources.state.schema_binding import BoundColumn
from sources.state.series_memory import SelectedSamples, SourceSeries, only
from sources.state.start_times import Flags, Ints, keep_last_number

END_AFTER_POLLS = 5
"""Consecutive polls without a series after which it has ended."""
MIN_FILE_AGE_MS = 2_000
"""Files younger than this (ms) are read at every poll: two changes within one clock tick have one signature."""
_YIELD_AFTER = 2_000
_AHEAD = f"more than {rules.MAX_AHEAD_MS // 1000} s ahead of this host's clock: taken once it is due"
_OLD = f"older than {rules.MAX_AGE_MS // 3_600_000} h (the time is in milliseconds)"
_WAITING = ("future", "half-written")
"""Reasons of refusal that may no longer hold when the same file is read again."""
_TWICE = "same series twice"
Result = TypeVar("Result")


class InThread(Protocol):
    """Runs work outside the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]: ...


@dataclass(frozen=True, slots=True)
class FileRead:
    """Content of a path, read in a thread; `columns` is None if the file is unchanged since the read before."""

    signature: Signature
    mtime_ms: int
    columns: LineColumns | None


class DropinFile:
    """Threads: `look` and `_select` run in a thread (`in_thread`), the rest in the event loop; never two at once.

    Arrays by row of the source: `_absent` counts the consecutive polls without a live series, `_present` marks the
    series of the last read. `_keys`: row and time of every line of the last read, None before the first."""

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
        self.path, self.series, self._series_owners = path, series, owners
        self._delivery, self._in_thread = delivery, in_thread
        series.sync = True
        owners.add(series)
        self._rules = delivery.rules.for_source(series.name)
        self._reader = LineReader(automatic, limits, self._rules)
        self.mtime_ms: int | None = None
        self.accepted = self.refused = 0
        self._complete: Signature | None = None
        self._counted: Signature | None = None
        self._generation = 0
        self._metadata = FileMetadata()
        self._row_of: Ints = np.zeros(0, np.int64)
        self._prints: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._absent: Ints = np.zeros(0, np.int64)
        self._present: Flags = np.zeros(0, np.bool_)
        self._keys: Ints | None = None

    # --- in the thread

    def read_if_changed(self) -> FileRead:
        """Read the file unless it is unchanged. Raises FileNotFoundError, FileRefusedError."""
        with closing(OpenFile(self.path)) as file:
            signature, mtime_ms = signature_of(file.stat), file.stat.st_mtime_ns // 1_000_000
            if signature == self._complete:
                return FileRead(signature, mtime_ms, None)
            return FileRead(signature, mtime_ms, self._reader.read(file))

    def parse_output(self, data: bytes, run: int, now_ms: int) -> FileRead:
        """Parse the output of a program like `look`. The number `run` distinguishes it from earlier outputs."""
        return FileRead((len(data), run), now_ms, self._reader.read(BytesReader(data)))

    def _select(self, columns: LineColumns, row: Ints, now_ms: int) -> SelectedSamples:
        """Select the new samples from lines whose series have the rows `row`; adds refusals to `columns.refused`."""
        lines = self._typed(columns, row)
        lines = rules.sort_lines(
            self._drop_untimely(lines, rules.is_future(lines.time_ms, now_ms), columns, "future", _AHEAD)
        )
        same, other = rules.find_duplicates(lines)
        _reject(columns, lines.line[other], "time taken", "another value for a series and time of a line above")
        lines = lines.pick(~same)
        lines = self._newer(lines, columns)
        lines = self._drop_untimely(lines, rules.is_too_old(lines.time_ms, now_ms), columns, "too old", _OLD)
        past = self._last_samples(lines)
        born = rules.start_times(lines, past, self.series.whole_ms, columns.metadata.birth_ms)
        last = np.ones(len(lines), np.bool_)
        last[:-1] = np.diff(lines.row) != 0
        prints = self.series.rows.state["fingerprint"][lines.row]
        samples = Samples(prints, lines.time_ms, born, lines.type, lines.cell, columns.strings)
        cell = keep_last_number(
            lines.type, lines.cell, past.cell, past.taken_ms > 0
        )  # to compare with at the next read
        none = np.zeros(0, np.int64)
        return SelectedSamples(samples, lines.row[last], cell[last], born[last], lines.time_ms[last], none)

    def _typed(self, columns: LineColumns, row: Ints) -> PlacedLines:
        """Return the lines of series that have a row, with cells in the type of their series."""
        held = np.flatnonzero(row >= 0)
        row, cell, type_ = row[held], columns.cell[held], columns.type[held]
        expected = self.series.rows.state["type"][row]
        widen = (type_ == ValueType.INTEGER) & (expected == ValueType.DOUBLE)
        if bool(widen.any()):
            cell[widen] = cell[widen].astype(np.float64).view(np.int64)
        good = widen | (type_ == expected)
        line = columns.line[held]
        _reject(columns, line[~good], "type change", "not of the type of its series")
        return PlacedLines(row, columns.time_ms[held], cell, expected, line).pick(good)

    @staticmethod
    def _drop_untimely(lines: PlacedLines, bad: Flags, columns: LineColumns, reason: str, text: str) -> PlacedLines:
        if not bool(bad.any()):
            return lines
        _reject(columns, lines.line[bad], reason, text)
        return lines.pick(~bad)

    def _newer(self, lines: PlacedLines, columns: LineColumns) -> PlacedLines:
        """Return the lines newer than all samples taken of their series. Reports late lines only when first read."""
        past, keys = self._last_samples(lines), lines.keys()
        before, self._keys = self._keys, keys
        new: Flags = lines.time_ms > past.taken_ms
        if bool(new.all()):
            return lines
        other = rules.contradicts(lines, past)
        _reject(columns, lines.line[other], "time taken", "another value for a series and time that was taken before")
        late = lines.time_ms < past.taken_ms
        if before is not None and bool(late.any()):
            late[late] = ~np.isin(keys[late], before)
            _reject(columns, lines.line[late], "out of order", "a newer sample of its series was taken before")
        return lines.pick(new)

    def _last_samples(self, lines: PlacedLines) -> LastSamples:
        state = self.series.rows.state[lines.row]
        kinds = np.zeros(len(lines), np.uint8)
        if len(lines) and self._metadata.kinds:
            kinds = np.array([described.kind for described in self.series.rows.descriptions], np.uint8)[lines.row]
        return LastSamples(state["cell"], state["birth_ms"], state["last_ms"], kinds)

    # --- in the event loop

    async def take(self, look: FileRead, tell: Callable[[RejectCounts], None]) -> int:
        """Deliver the new samples of `look` with the ends of missing series, and return the number of samples. Calls
        `tell` with the refusals of a read. Raises SinkRefusedError: nothing was accepted."""
        now_ms, columns = self._delivery.clock.now_ms(), look.columns
        self.mtime_ms = look.mtime_ms
        if columns is None:
            self._miss(~self._pad_arrays())
            return await self._end_missing()
        row = await self._settle(columns, now_ms)
        taken = await self._in_thread(partial(self._select, columns, row, now_ms))
        self._mark(row, columns.complete)
        tell(columns.rejected)
        self._delivery.rules.set_counts(self.series.name, self._rules, self._reader.changed_by_rule)
        state = self.series.rows.state[taken.row]
        begun = state["fingerprint"][~state["live"]].tolist()
        samples = await self._deliver(replace(taken, ended=self._ended()), now_ms)
        self._series_owners.claim(begun, self.series)
        self._record(look, columns, samples, now_ms)
        return samples

    async def _deliver(self, taken: SelectedSamples, now_ms: int) -> int:
        return await self._delivery.take(self.series, lambda: self.series.prepare_selected(taken, now_ms))

    async def _end_missing(self) -> int:
        """End the series that were missing for too long; return 0 samples. Raises SinkRefusedError: none was ended."""
        return await self._deliver(only(Samples.of(()), self._ended()), self._delivery.clock.now_ms())

    async def _settle(self, columns: LineColumns, now_ms: int) -> Ints:
        """Return the row of each line, -1 for a refused one. An unknown series gets a row only if a line may be its
        first sample, because every series with a row is announced."""
        self._extend_columns(columns)
        untimely = self._untimely(columns, now_ms)
        first, type_ = self._first_lines(columns, ~untimely)
        counts = np.bincount(columns.column[~untimely], minlength=len(first))
        wanted = np.flatnonzero((first >= 0) & ~self._has_row(type_)).tolist()
        wanted = await self._unowned(wanted, columns, first, counts)
        found = self.series.place_columns(self._columns(wanted, type_, columns.metadata), now_ms, 0)
        for count, (column, row, reason) in enumerate(found, 1):
            at = column.at
            self._row_of[at] = row
            if reason:
                line = int(columns.line[first[at]])
                columns.rejected.add(reason, self._rejection_text(reason, column), int(counts[at]), line)
            else:
                self._series_owners.inherit(column.fingerprint, self.series)
                self._absent[row : row + 1] = 0
            if count % _YIELD_AFTER == 0:
                await asyncio.sleep(0)
        return np.where(untimely, -1, self._row_of[columns.column])

    def _untimely(self, columns: LineColumns, now_ms: int) -> Flags:
        """Refuse lines of unknown series that are too early or too old to be a first sample. Return their mask."""
        unknown, rows = ~self._has_any_row(), self.series.rows.by_fingerprint
        for at in np.flatnonzero(unknown).tolist():
            unknown[at] = self._reader.prints[at] not in rows
        strange = unknown[columns.column]
        early = strange & rules.is_future(columns.time_ms, now_ms)
        old = strange & rules.is_too_old(columns.time_ms, now_ms)
        _reject(columns, columns.line[early], "future", _AHEAD)
        _reject(columns, columns.line[old], "too old", _OLD)
        return early | old

    async def _unowned(self, wanted: list[int], columns: LineColumns, first: Ints, counts: Ints) -> list[int]:
        """Return the columns that no other file owns; refuse the others."""
        free = []
        for count, at in enumerate(wanted, 1):
            other = self._series_owners.owner_of(self._reader.prints[at], self.series)
            if other:
                self._row_of[at] = -1
                text = f"series already comes from {other}: {self._reader.texts[at]:.200}"
                columns.rejected.add(_TWICE, text, int(counts[at]), int(columns.line[first[at]]))
            else:
                free.append(at)
            if count % _YIELD_AFTER == 0:
                await asyncio.sleep(0)
        return free

    def _extend_columns(self, columns: LineColumns) -> None:
        """Extend the arrays to the columns of the reader; forget all columns if it renumbered them."""
        reader = self._reader
        if self._generation != reader.generation or self._metadata is not columns.metadata:
            self._generation, self._metadata = reader.generation, columns.metadata
            self._row_of, self._prints = self._row_of[:0], self._prints[:0]
        more = len(reader.prints) - len(self._row_of)
        self._row_of = np.concatenate([self._row_of, np.full(more, -1, np.int64)])
        fresh = np.array(reader.prints[len(self._prints) :], np.uint64)
        self._prints = np.concatenate([self._prints, fresh])

    def _first_lines(self, columns: LineColumns, counting: Flags) -> tuple[Ints, npt.NDArray[np.uint8]]:
        """Return for each column its first line in `counting` (-1 if none) and its type: DOUBLE if any of its numbers
        is a DOUBLE."""
        n, lines = len(self._row_of), np.flatnonzero(counting)
        first = np.full(n, -1, np.int64)
        first[columns.column[lines][::-1]] = lines[::-1]
        type_ = np.zeros(n, np.uint8)
        type_[first >= 0] = columns.type[first[first >= 0]]
        double = np.zeros(n, np.bool_)
        double[columns.column[counting & (columns.type == ValueType.DOUBLE)]] = True
        type_[double & (type_ == ValueType.INTEGER)] = ValueType.DOUBLE
        return first, type_

    def _has_row(self, type_: npt.NDArray[np.uint8]) -> Flags:
        """Return the columns whose row is known, takes their type and is live (so that no other file owns them)."""
        placed = self._has_any_row()
        state = self.series.rows.state[self._row_of[placed]]
        takes = (state["type"] == type_[placed]) | (
            (state["type"] == ValueType.DOUBLE) & (type_[placed] == ValueType.INTEGER)
        )
        placed[placed] = takes & state["live"]
        return placed

    def _has_any_row(self) -> Flags:
        """Return the columns whose row is known and still has their fingerprint."""
        held = self._row_of >= 0
        held[held] = self.series.rows.state["fingerprint"][self._row_of[held]] == self._prints[held]
        return held

    def _columns(
        self, wanted: Iterable[int], type_: npt.NDArray[np.uint8], told: FileMetadata
    ) -> Iterator[BoundColumn]:
        rows, reader = self.series.rows, self._reader
        for at in wanted:
            name, print_, value_type = reader.names[at], reader.prints[at], ValueType(int(type_[at]))
            row = rows.by_fingerprint.get(print_)
            if row is not None and value_type == ValueType.INTEGER and rows.state["type"][row] == ValueType.DOUBLE:
                value_type = ValueType.DOUBLE  # an integer such as 7 is a valid DOUBLE
            kind = told.kinds.get(name, Kind.UNKNOWN)
            yield BoundColumn(
                at, reader.texts[at], print_, value_type, kind, told.help.get(name, ""), told.units.get(name, "")
            )

    def _rejection_text(self, reason: str, column: BoundColumn) -> str:
        if reason == "too many series":
            return f"more than {self.series.max_series:,} series in a file: {column.text:.200}"
        if reason == "type change":
            row = self.series.rows.by_fingerprint[column.fingerprint]
            known = ValueType(int(self.series.rows.state["type"][row])).name
            return f"{column.type.name} where its series is {known}: {column.text:.200}"
        return f"{reason}: {column.text:.200}"

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
        final = columns.complete and not {"future", _TWICE} & columns.rejected.counts.keys()
        self._complete = look.signature if final and now_ms - look.mtime_ms > MIN_FILE_AGE_MS else None


def _reject(columns: LineColumns, lines: Ints, reason: str, text: str) -> None:
    """Add refused lines to the counts, with the first of them as the example."""
    if len(lines):
        columns.rejected.add(reason, text, len(lines), int(lines.min()))
