"""Which files, and which row groups of them, can hold what is asked for: decided by their statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable

Ints = npt.NDArray[np.int64]

BOUNDS = ("source", "series", "time")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RawFile:
    """A live file of the raw table; `path` is relative to it."""

    path: str
    size: int
    rows: int
    newest_us: int = 2**62
    """Nothing in it is newer."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Files that may hold an answer, and how much there is in all."""

    files: tuple[RawFile, ...]
    of_files: int
    of_bytes: int

    @property
    def size(self) -> int:
        """Bytes of the files that may hold an answer."""
        return sum(file.size for file in self.files)


class Wanted:
    """Pairs of source and series, and a time: what rows of the raw table are looked for.

    Invariant: pairs are distinct and sorted by (source, series). Times are epoch milliseconds, (after, until]."""

    def __init__(self, source: Ints, series: Ints, after_ms: int, until_ms: int) -> None:
        self.order: Ints = np.lexsort((series, source))
        """Pair i of this object is pair order[i] of what was given."""
        self.source, self.series = source[self.order], series[self.order]
        self.after_us, self.until_us = after_ms * 1000, until_ms * 1000
        self._sources = np.unique(self.source)

    def __len__(self) -> int:
        return len(self.source)

    def may_hold(self, least: Sequence[int], most: Sequence[int]) -> bool:
        """Whether rows within these bounds (of source, series, time in us) can hold a wanted one."""
        if most[2] <= self.after_us or least[2] > self.until_us:
            return False
        low, high = np.searchsorted(self.source, [least[0], most[0] + 1])
        series = self.series[low:high]
        return bool(((series >= least[1]) & (series <= most[1])).any())

    def rows(self, source: Ints, series: Ints, time_us: Ints) -> tuple[Ints, Ints]:
        """Of these rows those that are wanted, and the number of the pair of each."""
        rows = np.flatnonzero((time_us > self.after_us) & (time_us <= self.until_us) & np.isin(source, self._sources))
        pairs = self._pairs(source[rows], series[rows])
        return rows[pairs >= 0], pairs[pairs >= 0]

    def _pairs(self, source: Ints, series: Ints) -> Ints:
        """(n,) number of each pair, -1 for what is none. Sources come in runs: files are sorted by them."""
        found = np.full(len(source), -1, np.int64)
        ends = np.append(np.flatnonzero(source[1:] != source[:-1]) + 1, len(source))
        start = 0
        for end in ends.tolist() if len(source) else ():
            low, high = np.searchsorted(self.source, [source[start], source[start] + 1])
            run = slice(start, end)
            at = np.minimum(np.searchsorted(self.series[low:high], series[run]), high - low - 1)
            found[run] = np.where(self.series[low:high][at] == series[run], low + at, -1)
            start = end
        return found


def prune(table: DeltaTable, wanted: Wanted) -> Pruned:
    """The files that can hold a wanted row, in the order of their paths. One without statistics can."""
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = {name: actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")}
    columns |= {
        name: actions.column(name).to_pylist() if name in actions.column_names else [None] * len(actions)
        for side in ("min", "max")
        for name in (f"{side}.{bound}" for bound in BOUNDS)
    }
    kept = []
    for row in zip(*columns.values(), strict=True):
        path, size, rows, *told = row
        if None in told:
            kept.append(RawFile(path, size, rows or 0))
        elif wanted.may_hold(_numbers(told[:3], 0), most := _numbers(told[3:], 1000)):
            kept.append(RawFile(path, size, rows or 0, most[2]))
    sizes = columns["size_bytes"]
    return Pruned(tuple(sorted(kept, key=lambda file: file.path)), len(sizes), sum(sizes))


def _numbers(told: Sequence[Any], slack_us: int) -> tuple[int, int, int]:
    """Bounds as numbers; Delta's times are cut to milliseconds."""
    return told[0], told[1], microseconds(told[2]) + slack_us


def microseconds(moment: datetime) -> int:
    """Epoch microseconds of a time with a zone."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
