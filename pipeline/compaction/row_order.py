"""Sort order of the files, (source, series, time), without a comparison sort of three keys. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.compute.kernels import kernels

Ints = npt.NDArray[np.int64]
Key = tuple[int, int, int]
"""(source, series, time in µs) of a row."""
KEYS = ("source", "series", "time")
MIN_SERIES_BITS = 16
MIN_STRETCH_ROWS = 32
"""Average length from which stretches of one series are sorted instead of rows."""

MIN_COPIED_ROWS = 512
"""Average length from which stretches of rows are copied one by one instead of rows."""


class SortKeys:
    """The three key columns of a batch or table without nulls, as int64 arrays of equal length."""

    __slots__ = ("series", "source", "time")

    def __init__(self, source: Ints, series: Ints, time: Ints) -> None:
        self.source, self.series, self.time = source, series, time

    @classmethod
    def of(cls, rows: Any) -> SortKeys:
        """Return the keys of a RecordBatch or Table of FILE_SCHEMA (artimon/rawtable/schema.py)."""
        source, series, time = (_numbers(rows.column(name)) for name in KEYS)
        return cls(source, series, time)

    def __len__(self) -> int:
        return len(self.source)

    def at(self, row: int) -> Key:
        return int(self.source[row]), int(self.series[row]), int(self.time[row])

    def take(self, rows: Ints) -> SortKeys:
        return SortKeys(self.source[rows], self.series[rows], self.time[rows])

    def first_after(self, key: Key, start: int) -> int:
        """Return the first row at or after `start` whose key is greater than `key`; the rows must be in order."""
        low, high = _equal(self.source, key[0], start, len(self.source))
        low, high = _equal(self.series, key[1], low, high)
        return low + int(np.searchsorted(self.time[low:high], key[2], side="right"))

    def is_ordered(self) -> bool:
        """Return True if no row is less than the one before it."""
        compiled = kernels()
        if compiled is None:
            return not len(self.descents())
        return compiled.is_ordered(self.source, self.series, self.time)

    def descents(self) -> Ints:
        """Return the rows whose successor is less than they are; empty if all rows are in order."""
        a, b, c = (column[:-1] for column in (self.source, self.series, self.time))
        x, y, z = (column[1:] for column in (self.source, self.series, self.time))
        wrong: Ints = np.flatnonzero((x < a) | ((x == a) & ((y < b) | ((y == b) & (z < c)))))
        return wrong


def order_of(keys: SortKeys) -> Ints | None:
    """Return row numbers in the order of (source, series, time); None if the rows are in order already.

    If rows of a series stand together, as in exports and sorted files, only these stretches are sorted. Otherwise one
    sort of 64-bit numbers: the source, as many leading bits of the series as fit, and the number of the row. The few
    rows that these bits do not order are then sorted by their full keys."""
    if keys.is_ordered():
        return None
    if (ordered := _order_of_stretches(keys)) is not None:
        return ordered
    packed, row_bits = _pack(keys)
    if packed is None:
        return np.lexsort((keys.time, keys.series, keys.source))
    packed.sort()
    order = (packed & np.uint64((1 << row_bits) - 1)).astype(np.int64)
    packed >>= np.uint64(row_bits)
    wrong = keys.take(order).descents()
    if len(wrong):
        _resort(order, packed, np.unique(packed[wrong]), keys)
    return order


def sort_rows(table: Any) -> Any:
    """Return the same rows in order, as a Table with one chunk a column."""
    table = table.combine_chunks()
    order = order_of(SortKeys.of(table))
    return table if order is None else take_rows(table, order)


def take_rows(table: Any, order: Ints) -> Any:
    """Return the rows in an order, as a Table with one chunk a column. Long stretches of rows are copied whole."""
    starts = np.flatnonzero(np.append(True, order[1:] != order[:-1] + 1)) if len(order) else order
    if len(starts) * MIN_COPIED_ROWS <= len(order):
        stretches = list(zip(order[starts].tolist(), np.diff(starts, append=len(order)).tolist(), strict=True))
        columns = [_copy(column, stretches) for column in table.columns]
    else:
        rows = pa.array(order)
        columns = [_take(column, rows) for column in table.columns]
    return pa.table(columns, schema=table.schema).combine_chunks()


def _order_of_stretches(keys: SortKeys) -> Ints | None:
    """Return the order of rows that are long stretches of one series each, in the order of time; None if they are
    short, or if two of a series overlap."""
    same = (keys.source[1:] == keys.source[:-1]) & (keys.series[1:] == keys.series[:-1])
    starts = np.flatnonzero(np.append(True, ~same | (keys.time[1:] < keys.time[:-1])))
    if len(starts) * MIN_STRETCH_ROWS > len(keys):
        return None
    lengths = np.diff(starts, append=len(keys))
    first = keys.take(starts)
    order = np.lexsort((first.time, first.series, first.source))
    first, starts, lengths = first.take(order), starts[order], lengths[order]
    same = (first.source[1:] == first.source[:-1]) & (first.series[1:] == first.series[:-1])
    if (same & (keys.time[starts + lengths - 1][:-1] >= first.time[1:])).any():
        return None
    rows: Ints = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(keys))
    return rows


def _pack(keys: SortKeys) -> tuple[npt.NDArray[np.uint64] | None, int]:
    count = len(keys)
    row_bits = count.bit_length()
    first_source = int(keys.source.min())
    source_bits = (int(keys.source.max()) - first_source).bit_length()
    room = 64 - row_bits - source_bits
    if room < MIN_SERIES_BITS:
        return None, row_bits
    least = int(keys.series.min())
    series = keys.series.view(np.uint64) - np.uint64(least % 2**64)  # wraps: the distance from the smallest
    shift = max(0, int(series.max()).bit_length() - room)
    packed = (keys.source - first_source).astype(np.uint64)
    packed <<= np.uint64(room)
    packed |= series >> np.uint64(shift)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(count, dtype=np.uint64)
    return packed, row_bits


def _resort(order: Ints, groups: npt.NDArray[np.uint64], wrong: npt.NDArray[np.uint64], keys: SortKeys) -> None:
    """Sort the rows of the groups `wrong` by their full keys, in place; the groups themselves are in order."""
    places = np.flatnonzero(np.isin(groups, wrong))
    rows = order[places]
    order[places] = rows[np.lexsort((keys.time[rows], keys.series[rows], keys.source[rows]))]


def _equal(column: Ints, value: int, start: int, end: int) -> tuple[int, int]:
    part = column[start:end]
    return start + int(np.searchsorted(part, value)), start + int(np.searchsorted(part, value, side="right"))


def _numbers(column: Any) -> Ints:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    numbers: Ints = column.to_numpy(zero_copy_only=True).astype(np.int64, copy=False)
    return numbers


def _copy(column: Any, stretches: list[tuple[int, int]]) -> Any:
    if column.null_count == len(column) or not stretches:
        return pa.nulls(sum(length for _, length in stretches), column.type)
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pa.concat_arrays([whole.slice(start, length) for start, length in stretches])


def _take(column: Any, rows: Any) -> Any:
    if column.null_count == len(column):
        return pa.nulls(len(rows), column.type)
    return column.take(rows)
