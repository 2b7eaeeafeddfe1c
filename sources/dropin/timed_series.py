"""Samples with times of their own, such as lines of a file: selects new ones, gives series the rows of a source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.model.batch import Samples
from artimon.model.values import Kind, ValueType
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin import line_start_times as rules
from sources.dropin.file_parser import FileMetadata, LineColumns
from sources.dropin.line_start_times import LastSamples, PlacedLines
from sources.dropin.series_columns import SeriesColumns
from sources.dropin.series_owners import SeriesOwners
from sources.state.schema_binding import BoundColumn
from sources.state.series_memory import SelectedSamples, SourceSeries
from sources.state.start_times import Flags, Ints, keep_last_number

_YIELD_AFTER = 2_000
_AHEAD = f"more than {rules.MAX_AHEAD_MS // 1000} s ahead of this host's clock: taken once it is due"
TWICE = "same series twice"
Result = TypeVar("Result")
PlacedSamples = tuple[Ints, SelectedSamples]
"""Row of each line, -1 for a refused one, and the new samples."""


class InThread(Protocol):
    """Runs work outside the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]: ...


class TimedSeries:
    """Path of such samples into one source. `place_known` and `_select` run in a thread (`in_thread`), the rest in the
    event loop; never two calls at once.

    `_kinds`: kind of each row that has a line; `_keys`: row and time of every line of the last read, None before the
    first."""

    def __init__(
        self,
        series: SourceSeries,
        reader: SeriesColumns,
        owners: SeriesOwners,
        delivery: ReadingDelivery,
        in_thread: InThread,
        max_age_ms: int = rules.MAX_AGE_MS,
        rereads: bool = True,
    ) -> None:
        """`rereads`: old lines come again with each read, as those of a file do; they are reported once."""
        self.series, self._series_owners, self._reader = series, owners, reader
        self._delivery, self._in_thread, self._max_age_ms = delivery, in_thread, max_age_ms
        self._old = f"older than {max_age_ms // 3_600_000} h (the time is in milliseconds)"
        series.sync = True
        owners.add(series)
        self._generation = 0
        self._metadata = FileMetadata()
        self._row_of: Ints = np.zeros(0, np.int64)
        self._prints: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._rereads = rereads
        self._kinds: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._keys: Ints | None = None

    async def place(self, columns: LineColumns, now_ms: int) -> PlacedSamples:
        """Return the row of each line, -1 for a refused one, and the new samples. Adds refusals to
        `columns.rejected`."""
        row = await self._settle(columns, now_ms)
        return row, await self._in_thread(partial(self._select, columns, row, now_ms))

    async def deliver(self, taken: SelectedSamples, now_ms: int) -> int:
        """Deliver samples and ends; return the number of samples. Raises SinkRefusedError: nothing was accepted."""
        state = self.series.rows.state
        begun = state["fingerprint"][taken.row[~state["live"][taken.row]]].tolist()
        samples = await self._delivery.take(self.series, lambda: self.series.prepare_selected(taken, now_ms))
        self._series_owners.claim(begun, self.series)
        return samples

    # --- in the thread

    def place_known(self, columns: LineColumns, now_ms: int) -> PlacedSamples | None:
        """Do the same as `place` without the event loop, if every line's series has its row; else return None, and
        nothing was refused."""
        self._extend_columns(columns)
        if bool(self._needs_row(columns.column, columns.type).any()):
            return None
        row = self._row_of[columns.column]
        return row, self._select(columns, row, now_ms)

    def _select(self, columns: LineColumns, row: Ints, now_ms: int) -> SelectedSamples:
        """Select the new samples from lines whose series have the rows `row`; adds refusals to `columns.refused`."""
        lines = self._typed(columns, row)
        lines = rules.sort_lines(
            self._drop_untimely(lines, rules.is_future(lines.time_ms, now_ms), columns, "future", _AHEAD)
        )
        same, other = rules.find_duplicates(lines)
        _reject(columns, lines.line[other], "time taken", "another value for a series and time of a line above")
        if bool(same.any()):
            lines = lines.pick(~same)
        lines, past = self._newer(lines, columns)
        old = rules.is_too_old(lines.time_ms, now_ms, self._max_age_ms)
        if bool(old.any()):
            lines = self._drop_untimely(lines, old, columns, "too old", self._old)
            past = self._last_samples(lines)
        lines = rules.accumulate(lines, past)
        born = rules.start_times(lines, past, self.series.whole_ms)
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
        held: Ints | slice = np.flatnonzero(row >= 0) if bool((row < 0).any()) else slice(None)
        row, cell, type_ = row[held], columns.cell[held], columns.type[held]
        expected = self.series.rows.state["type"].take(row)
        widen = (type_ == ValueType.INTEGER) & (expected == ValueType.DOUBLE)
        if bool(widen.any()):
            cell = np.where(widen, cell.astype(np.float64).view(np.int64), cell)
        good = widen | (type_ == expected)
        line = columns.line[held]
        _reject(columns, line[~good], "type change", "not of the type of its series")
        none, of_all = np.zeros(len(row), np.bool_), columns.metadata.birth_ms or 0
        told = np.full(len(row), of_all, np.int64) if columns.birth_ms is None else columns.birth_ms[held]
        delta = none if columns.delta is None else columns.delta[held]
        lines = PlacedLines(row, columns.time_ms[held], cell, expected, line, told, delta)
        return lines if bool(good.all()) else lines.pick(good)

    @staticmethod
    def _drop_untimely(lines: PlacedLines, bad: Flags, columns: LineColumns, reason: str, text: str) -> PlacedLines:
        if not bool(bad.any()):
            return lines
        _reject(columns, lines.line[bad], reason, text)
        return lines.pick(~bad)

    def _newer(self, lines: PlacedLines, columns: LineColumns) -> tuple[PlacedLines, LastSamples]:
        """Return the lines newer than all samples taken of their series, and these samples. Reports late lines only
        when first read."""
        past, keys = self._last_samples(lines), lines.keys()
        before, self._keys = self._keys, keys
        new: Flags = lines.time_ms > past.taken_ms
        if bool(new.all()):
            return lines, past
        other = rules.contradicts(lines, past)
        _reject(columns, lines.line[other], "time taken", "another value for a series and time that was taken before")
        late = lines.time_ms < past.taken_ms
        if self._rereads and before is not None:
            late[late] = ~np.isin(keys[late], before)
        if not self._rereads or before is not None:
            _reject(columns, lines.line[late], "out of order", "a newer sample of its series was taken before")
        lines = lines.pick(new)
        return lines, self._last_samples(lines)

    def _last_samples(self, lines: PlacedLines) -> LastSamples:
        state, row = self.series.rows.state, lines.row
        cell, birth_ms, last_ms = (state[name].take(row) for name in ("cell", "birth_ms", "last_ms"))
        return LastSamples(cell, birth_ms, last_ms, self._kinds.take(row))

    # --- in the event loop

    async def _settle(self, columns: LineColumns, now_ms: int) -> Ints:
        """Return the row of each line, -1 for a refused one. An unknown series gets a row only if a line may be its
        first sample, because every series with a row is announced."""
        self._extend_columns(columns)
        untimely = self._untimely(columns, now_ms)
        first, type_ = self._first_lines(columns, ~untimely)
        counts = np.bincount(columns.column[~untimely], minlength=len(first))
        here = np.flatnonzero(first >= 0)
        needed = here[self._needs_row(here, type_[here])].tolist()
        wanted = await self._unowned(needed, columns, first, counts)
        found = self.series.place_columns(self._columns(wanted, type_, columns.metadata), now_ms, 0)
        for count, (column, row, reason) in enumerate(found, 1):
            at = column.at
            self._set_kind(row, column.kind)
            self._row_of[at] = row
            if reason:
                line = int(columns.line[first[at]])
                columns.rejected.add(reason, self._rejection_text(reason, column), int(counts[at]), line)
            else:
                self._series_owners.inherit(column.fingerprint, self.series)
            if count % _YIELD_AFTER == 0:
                await asyncio.sleep(0)
        return np.where(untimely, -1, self._row_of[columns.column])

    def _untimely(self, columns: LineColumns, now_ms: int) -> Flags:
        """Refuse lines of unknown series that are too early or too old to be a first sample. Return their mask."""
        strange, rows = ~self._known(columns.column), self.series.rows.by_fingerprint
        at, place = np.unique(columns.column[strange], return_inverse=True)
        unknown = np.fromiter((self._reader.prints[one] not in rows for one in at.tolist()), np.bool_, len(at))
        strange[strange] = unknown[place]
        early = strange & rules.is_future(columns.time_ms, now_ms)
        old = strange & rules.is_too_old(columns.time_ms, now_ms, self._max_age_ms)
        _reject(columns, columns.line[early], "future", _AHEAD)
        _reject(columns, columns.line[old], "too old", self._old)
        return early | old

    def _set_kind(self, row: int, kind: Kind) -> None:
        if row >= len(self._kinds):
            more = np.zeros(max(64, row), np.uint8)
            self._kinds = np.concatenate([self._kinds, more])
        if row >= 0:
            self._kinds[row] = kind

    async def _unowned(self, wanted: list[int], columns: LineColumns, first: Ints, counts: Ints) -> list[int]:
        """Return the columns that no other file owns; refuse the others."""
        free = []
        for count, at in enumerate(wanted, 1):
            other = self._series_owners.owner_of(self._reader.prints[at], self.series)
            if other:
                self._row_of[at] = -1
                text = f"series already comes from {other}: {self._reader.texts[at]:.200}"
                columns.rejected.add(TWICE, text, int(counts[at]), int(columns.line[first[at]]))
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
        if not more:
            return
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

    def _needs_row(self, at: Ints, type_: npt.NDArray[np.uint8]) -> Flags:
        """Return the mask of columns without a known row that takes their types and is live (so that no other file owns
        them)."""
        state, row = self.series.rows.state, self._row_of.take(at)
        if not len(state):
            return np.ones(len(at), np.bool_)
        known, live = (state[name].take(row, mode="clip") for name in ("type", "live"))
        takes = (known == type_) | ((known == ValueType.DOUBLE) & (type_ == ValueType.INTEGER))
        settled: Flags = self._known(at) & takes & live
        return ~settled

    def _known(self, at: Ints) -> Flags:
        """Return the mask of columns whose row is known and still has their fingerprint."""
        row, state = self._row_of.take(at), self.series.rows.state
        if not len(state):
            return np.zeros(len(at), np.bool_)
        same: Flags = state["fingerprint"].take(row, mode="clip") == self._prints.take(at)
        return same & (row >= 0)

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


def _reject(columns: LineColumns, lines: Ints, reason: str, text: str) -> None:
    """Add refused lines to the counts, with the first of them as the example."""
    if len(lines):
        columns.rejected.add(reason, text, len(lines), int(lines.min()))
