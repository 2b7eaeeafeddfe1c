"""Bucketizer: samples in order become statistics of buckets, and buckets become wider ones.

Rows of one bucket follow one another, in the order of time and at equal times of value; `begins` says where each bucket
begins. Shards, refill and the history sort and group their rows each in their own way and cut them here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Ints
from artimon.compute.statistics import FOLDS, Stats, fold_runs

Begins = npt.NDArray[np.intp]


def begins_of(*columns: npt.NDArray[np.generic]) -> Begins:
    """The places at which one of the columns changes."""
    new = np.ones(len(columns[0]), np.bool_)
    np.not_equal(columns[0][1:], columns[0][:-1], out=new[1:])
    for column in columns[1:]:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def ends_of(begins: Begins, rows: int) -> Begins:
    """The last row of each run; there is at least one run, or no row."""
    return np.append(begins[1:], rows) - 1 if len(begins) else begins


def cut_samples(begins: Begins, time_ms: Ints, cells: Ints, double: Bools | bool) -> dict[str, Ints]:
    """Every statistic of buckets of samples; `double` of samples."""
    ends = ends_of(begins, len(cells))
    last = cells[ends]
    if len(begins) == len(cells):
        folded: tuple[Ints, ...] = (last,) * len(FOLDS)
    else:
        folded = fold_runs(begins, (cells,) * len(FOLDS), double)
    stats = {"count": ends - begins + 1, "last": last, "last_time": time_ms[ends]}
    return stats | dict(zip(FOLDS, folded, strict=True))


def cut_buckets(begins: Begins, stats: Stats, double: Bools | bool) -> dict[str, Ints]:
    """Every statistic of buckets of narrower buckets; `double` of the narrower ones."""
    ends = ends_of(begins, len(stats["count"]))
    folded = fold_runs(begins, [stats[name] for name in FOLDS], double)
    made = {
        "count": np.add.reduceat(stats["count"], begins),
        "last": stats["last"][ends],
        "last_time": stats["last_time"][ends],
    }
    return made | dict(zip(FOLDS, folded, strict=True))
