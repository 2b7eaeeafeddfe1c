"""Bucketizer: statistics of buckets from sorted samples or from narrower buckets.

Rows of one bucket are contiguous and sorted by time, at equal times by value; `begins` holds the first row of each
bucket. Shards, refill and the history engine sort and group their rows themselves before they call this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Ints
from artimon.compute.statistics import FOLDS, Stats, fold_runs

Begins = npt.NDArray[np.intp]


def run_starts(*columns: npt.NDArray[np.generic]) -> Begins:
    """Return the rows at which any of the columns changes."""
    new = np.ones(len(columns[0]), np.bool_)
    np.not_equal(columns[0][1:], columns[0][:-1], out=new[1:])
    for column in columns[1:]:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct numbers, ascending, by sorting; numpy's `unique` hashes them, which takes up to fifty times
    as long."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def run_ends(begins: Begins, rows: int) -> Begins:
    """Return the last row of each run; `begins` is empty only if there are no rows."""
    return np.append(begins[1:], rows) - 1 if len(begins) else begins


def bucketize_samples(begins: Begins, time_ms: Ints, cells: Ints, double: Bools | bool) -> dict[str, Ints]:
    """Return all statistics of buckets of samples; `double` marks the samples that are DOUBLE."""
    ends = run_ends(begins, len(cells))
    last = cells[ends]
    if len(begins) == len(cells):
        folded: tuple[Ints, ...] = (last,) * len(FOLDS)
    else:
        folded = fold_runs(begins, (cells,) * len(FOLDS), double)
    stats = {"count": ends - begins + 1, "last": last, "last_time": time_ms[ends]}
    return stats | dict(zip(FOLDS, folded, strict=True))


def coarsen_buckets(begins: Begins, stats: Stats, double: Bools | bool) -> dict[str, Ints]:
    """Return all statistics of buckets of narrower buckets; `double` marks the narrower ones that are DOUBLE."""
    ends = run_ends(begins, len(stats["count"]))
    folded = fold_runs(begins, [stats[name] for name in FOLDS], double)
    made = {
        "count": np.add.reduceat(stats["count"], begins),
        "last": stats["last"][ends],
        "last_time": stats["last_time"][ends],
    }
    return made | dict(zip(FOLDS, folded, strict=True))
