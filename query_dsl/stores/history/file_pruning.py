"""Pruning of files and row groups of the raw table by their statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.compute.bucketizer import run_starts
from artimon.rawtable.delta import ListedTable

Ints = npt.NDArray[np.int64]

BOUNDS = ("source", "series", "time")
STAMP = pa.timestamp("us", tz="UTC")
SLACK_US = 1000
"""Slack on maximum times, because Delta truncates them to milliseconds."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """A live file of the raw table; `path` is relative to it."""

    path: str
    size: int
    rows: int
    newest_us: int = 2**62
    """Upper bound of the times in it."""
    oldest_us: int = -(2**62)
    """Lower bound of the times in it."""


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """Files that may hold wanted rows, and the number and bytes of all files."""

    files: tuple[RawFile, ...]
    of_files: int
    of_bytes: int

    @property
    def size(self) -> int:
        """Bytes of the files that may hold wanted rows."""
        return sum(file.size for file in self.files)


class RowFilter:
    """Filter of rows of the raw table: pairs of source and series, and a time range.

    Invariant: pairs are distinct and sorted by (source, series). Times are epoch milliseconds, (after, until]."""

    def __init__(self, source: Ints, series: Ints, after_ms: int, until_ms: int) -> None:
        self.order: Ints = np.lexsort((series, source))
        """Pair i of this object is pair order[i] of the arguments."""
        self.source, self.series = source[self.order], series[self.order]
        self.after_us, self.until_us = after_ms * 1000, until_ms * 1000
        self._sources = np.unique(self.source)

    def __len__(self) -> int:
        return len(self.source)

    def may_hold(self, least: Sequence[int], most: Sequence[int]) -> bool:
        """True if rows within these bounds (of source, series, time in us) may include a wanted one."""
        if most[2] <= self.after_us or least[2] > self.until_us:
            return False
        low, high = np.searchsorted(self.source, [least[0], most[0] + 1])
        series = self.series[low:high]
        return bool(((series >= least[1]) & (series <= most[1])).any())

    def match(self, source: Ints, series: Ints, time_us: Ints) -> tuple[Ints | None, Ints]:
        """Return the indices of wanted rows, None for all, and the number of the pair of each."""
        starts = run_starts(source, series)
        pairs = self.pairs_of(source[starts], series[starts])
        of_rows = np.repeat(pairs, np.diff(starts, append=len(source)))
        if not len(of_rows) or ((pairs >= 0).all() and self.after_us < time_us.min() <= time_us.max() <= self.until_us):
            return None, of_rows
        rows = np.flatnonzero((of_rows >= 0) & (time_us > self.after_us) & (time_us <= self.until_us))
        return rows, of_rows[rows]

    def pairs_of(self, source: Ints, series: Ints) -> Ints:
        """(n,) number of each pair, -1 if it is not wanted. Sources come in runs: files are sorted by them."""
        if len(source):
            low, high = np.searchsorted(self.source, [source[0], source[0] + 1])
            at = low + int(np.searchsorted(self.series[low:high], series[0]))
            all_of = slice(at, at + len(source))  # often all pairs are wanted, and no other lies between them
            if np.array_equal(self.series[all_of], series) and np.array_equal(self.source[all_of], source):
                return np.arange(at, at + len(source))
        found = np.full(len(source), -1, np.int64)
        starts = run_starts(source)
        ends = np.append(starts[1:], len(source))
        known = np.isin(source[starts], self._sources)
        for start, end in zip(starts[known].tolist(), ends[known].tolist(), strict=True):
            low, high = np.searchsorted(self.source, [source[start], source[start] + 1])
            run = slice(start, end)
            at = np.minimum(np.searchsorted(self.series[low:high], series[run]), high - low - 1)
            found[run] = np.where(self.series[low:high][at] == series[run], low + at, -1)
        return found


def prune(table: ListedTable, wanted: RowFilter) -> PrunedFiles:
    """Return the files that may hold a wanted row, sorted by path. Files without statistics are included."""
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = {name: actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")}
    told = [_statistic(actions, f"{side}.{bound}") for side in ("min", "max") for bound in BOUNDS]
    kept = []
    for path, size, rows, *bounds in zip(*columns.values(), *told, strict=True):
        least, most = bounds[:3], bounds[3:]
        if None in bounds:
            kept.append(RawFile(path, size, rows or 0))
        elif wanted.may_hold(least, newest := [*most[:2], most[2] + SLACK_US]):
            kept.append(RawFile(path, size, rows or 0, newest[2], least[2]))
    sizes = columns["size_bytes"]
    return PrunedFiles(tuple(sorted(kept, key=lambda file: file.path)), len(sizes), sum(sizes))


def _statistic(actions: Any, name: str) -> list[Any]:
    """Return a column of Delta's statistics, times in us; only None if it does not exist."""
    if name not in actions.column_names:
        return [None] * len(actions)
    column = actions.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(STAMP).cast(pa.int64())
    told: list[Any] = column.to_pylist()
    return told
