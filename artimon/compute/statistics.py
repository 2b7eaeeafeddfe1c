"""Statistics of a bucket: the single table for shards, the history engine, refill, snapshots and answers.

A bucket keeps its number of samples, the newest one with its time, and folded statistics: a join computes them from
samples and merges those of two buckets. For one sample every folded statistic equals the sample, so it is stored only
for buckets of two or more samples. Values are cells in the type of the series; STRING has no folded statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Ints
from artimon.compute.true_sums import sums_to_double
from artimon.model.values import INT64_MAX, INT64_MIN

Stats = Mapping[str, Ints]
"""Columns of one length, or matrices of one shape, by name of the statistic."""
DoubleBits = Ints | bool
"""Bit mask: all ones for cells that are the bits of a double, else 0; True or False for all cells alike."""


class Fold(NamedTuple):
    """A join of two values and its neutral values as int64 and float64."""

    join: np.ufunc
    whole: int
    real: float

    def neutral(self, double: Bools | bool) -> Ints | int:
        """Return cells of the neutral value."""
        bits = int(np.float64(self.real).view(np.int64))
        if isinstance(double, bool):
            return bits if double else self.whole
        return np.where(double, bits, self.whole)


MIN = Fold(np.minimum, INT64_MAX, np.inf)
MAX = Fold(np.maximum, INT64_MIN, -np.inf)
SUM = Fold(np.add, 0, 0.0)
"""Sums of integers are modulo 2^64: artimon/compute/true_sums.py."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of the table. A packed column holds the difference to a prediction, which is zero for a single sample."""

    name: str
    """Name in requests, answers and partial buckets of the history engine."""
    field: str
    """Column of a cell in a shard and in a snapshot."""
    dtype: type[np.int64] | type[np.uint32]
    """Type of that column."""
    fold: Fold | None = None
    """None: `count` adds up; `last` and its time are those of the newest sample, at equal times of the greatest."""
    needs: tuple[str, ...] = ()
    """Statistics that determine its true value."""
    scaled: bool = False
    """True if the prediction is count * last, not last."""
    sign: Literal[-1, 0, 1] = 0
    """Integers are packed as sign * (value - prediction); 0: as zigzag of the difference."""


TABLE = (
    Statistic("count", "count", np.uint32),
    Statistic("last", "last", np.int64),
    Statistic("last_time", "offset", np.uint32),  # milliseconds; the field counts from the left edge of the bucket
    Statistic("min", "min", np.int64, MIN, sign=-1),
    Statistic("max", "max", np.int64, MAX, sign=1),
    Statistic("sum", "sum", np.int64, SUM, needs=("count", "min", "max"), scaled=True),
)
STATISTICS = tuple(statistic.name for statistic in TABLE)
FIELDS: Mapping[str, type[Any]] = MappingProxyType({statistic.field: statistic.dtype for statistic in TABLE})
FIELD_OF: Mapping[str, str] = MappingProxyType({statistic.name: statistic.field for statistic in TABLE})
FOLDED: Mapping[str, Statistic] = MappingProxyType({s.name: s for s in TABLE if s.fold is not None})
FOLDS: Mapping[str, Fold] = MappingProxyType({s.name: s.fold for s in TABLE if s.fold is not None})
VALUES = ("last", *FOLDS)
"""Statistics that are values of the series."""


def with_needs(names: Collection[str]) -> set[str]:
    """Return `names`, `count`, and the statistics that determine the true value of each."""
    return {*names, "count", *(need for name in names if name in FOLDED for need in FOLDED[name].needs)}


def bits_of(double: Bools) -> DoubleBits:
    """Convert a mask to bits, which avoid a branch per cell in joins."""
    if not double.any():
        return False
    return True if double.all() else -double.astype(np.int64)


def join_cells(fold: Fold, mine: Ints, theirs: Ints, double: DoubleBits) -> Ints:
    """Join the cells of two arrays of buckets element by element, to a new array."""
    with np.errstate(all="ignore"):  # inf - inf in a sum of doubles is NaN; integers wrap
        if double is True:
            reals: Ints = fold.join(mine.view(np.float64), theirs.view(np.float64)).view(np.int64)
            return reals
        joined: Ints = fold.join(mine, theirs)
        if double is not False:
            other = fold.join(mine.view(np.float64), theirs.view(np.float64)).view(np.int64)
            other ^= joined
            other &= double
            joined ^= other
    return joined


def fold_runs(begins: npt.NDArray[np.intp], columns: Sequence[Ints], double: Bools | bool) -> tuple[Ints, ...]:
    """Return every folded statistic of runs of rows, from its column; `double` marks rows and is equal within a run."""
    folds = tuple(zip((fold.join for fold in FOLDS.values()), columns, strict=True))
    if not isinstance(double, bool) and (double.all() or not double.any()):
        double = bool(double.all())
    with np.errstate(all="ignore"):
        if isinstance(double, bool):
            dtype = np.float64 if double else np.int64
            return tuple(join.reduceat(column.view(dtype), begins).view(np.int64) for join, column in folds)
        out = tuple(join.reduceat(column, begins) for join, column in folds)
        of_run = double[begins]
        before: Ints = np.cumsum(double) - double
        starts = np.asarray(before[begins[of_run]])
        for found, (join, column) in zip(out, folds, strict=True):
            found[of_run] = join.reduceat(column[double].view(np.float64), starts).view(np.int64)
    return out


def fold_last_axis(fold: Fold, cells: npt.NDArray[np.int64], there: Bools, double: Bools) -> Ints:
    """Fold the buckets along the last axis, 0 if none is `there`; `double` marks rows of the first axis."""
    out: Ints = np.zeros(cells.shape[:-1], np.int64)
    with np.errstate(all="ignore"):
        out[~double] = fold.join.reduce(np.where(there, cells, fold.whole)[~double], axis=-1)
        reals = np.where(there[double], cells[double].view(np.float64), fold.real)
        out[double] = np.ascontiguousarray(fold.join.reduce(reals, axis=-1)).view(np.int64)
    out[~there.any(axis=-1)] = 0
    return out


def from_samples(cells: Ints, present: Bools, times: Ints) -> dict[str, Ints]:
    """Return statistics of buckets with one sample each, or none; the arrays are shared."""
    stats = dict.fromkeys(STATISTICS, np.where(present, cells, 0))
    return stats | {"count": present.astype(np.int64), "last_time": np.where(present, times, 0)}


def to_double(stats: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Convert statistics of an INTEGER series that became DOUBLE; sums exactly if the statistics they need exist."""
    made = dict(stats)
    for name in VALUES:
        if name in stats:
            made[name] = np.ascontiguousarray(stats[name]).astype(np.float64).view(np.int64)
    if "sum" in stats and set(FOLDED["sum"].needs) <= stats.keys():
        parts = [np.ascontiguousarray(stats[name]).ravel() for name in ("count", "min", "max", "sum")]
        made["sum"] = sums_to_double(*parts).view(np.int64).reshape(stats["sum"].shape)
    return made
