"""What window functions work on: statistics of buckets, straight from a store or made of a matrix that was computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from artimon.model.grid import Grid
from artimon.model.select import BIRTH_TYPE, Buckets
from query_dsl.cells import STRING, Bools, Cells, Ints, Key, Types

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class BucketData:
    """Arrays of shape (series, grid.n) in canonical order of the keys; `lives` sorted by (row, birth)."""

    keys: tuple[Key, ...]
    kinds: Types
    types: Types
    strings: tuple[str, ...]
    grid: Grid
    stats: Mapping[str, Ints]
    lives: npt.NDArray[np.void]
    ended_ms: Ints
    first_held: int = 0
    """Columns before this one are not in the store at all: empty here, yet nobody knows what was in them."""
    stored: bool = True
    """False where the values were computed: no births, one value a bucket, at its end."""

    @property
    def present(self) -> Bools:
        return np.asarray(self.stats["count"] > 0)

    def shifted(self, ms: int) -> BucketData:
        """The same data as if everything had happened `ms` later."""
        stats = dict(self.stats)
        if "last_time" in stats:
            stats["last_time"] = stats["last_time"] + ms
        lives = self.lives.copy()
        for name in ("birth_ms", "first_ms", "last_ms"):
            lives[name] += ms
        ended = np.where(self.ended_ms > 0, self.ended_ms + ms, 0)
        grid = Grid(self.grid.end_ms + ms, self.grid.step_ms, self.grid.n)
        return replace(self, grid=grid, stats=stats, lives=lives, ended_ms=ended)

    def only(self, rows: Rows) -> BucketData:
        """The chosen series, in the order of `rows`."""
        if len(rows) == len(self.keys) and (rows == np.arange(len(rows))).all():
            return self
        place = np.full(len(self.keys), -1, np.int64)
        place[rows] = np.arange(len(rows))
        lives = self.lives[place[self.lives["row"]] >= 0] if len(self.lives) else self.lives
        lives = lives.copy()
        lives["row"] = place[lives["row"]]
        lives = lives[np.lexsort((lives["birth_ms"], lives["row"]))]
        return replace(
            self,
            keys=tuple(self.keys[i] for i in rows),
            kinds=self.kinds[rows],
            types=self.types[rows],
            stats={name: matrix[rows] for name, matrix in self.stats.items()},
            lives=lives,
            ended_ms=self.ended_ms[rows],
        )


def from_buckets(buckets: Buckets) -> BucketData:
    """The answer of a store, series in its order."""
    n = len(buckets.series)
    ended = buckets.ended_ms if len(buckets.ended_ms) == n else np.zeros(n, np.int64)
    return BucketData(
        keys=tuple(Key(s.name, tuple(sorted((k, v) for k, v in s.labels.items() if v))) for s in buckets.series),
        kinds=np.array([s.kind for s in buckets.series], np.uint8),
        types=np.array([s.type for s in buckets.series], np.uint8),
        strings=buckets.strings,
        grid=buckets.grid,
        stats={name: np.asarray(matrix, np.int64) for name, matrix in buckets.statistics.items()},
        lives=buckets.births,
        ended_ms=np.asarray(ended, np.int64),
    )


def from_cells(keys: tuple[Key, ...], grid: Grid, column: Cells, strings: tuple[str, ...]) -> BucketData:
    """Computed values as buckets of one sample each, taken at the end of the bucket."""
    types, cells, present = column
    filled = np.where(present, cells, 0)
    stats = dict.fromkeys(("last", "min", "max", "sum"), filled)
    stats["count"] = present.astype(np.int64)
    stats["last_time"] = np.where(present, grid.ends()[None, :], 0)
    return BucketData(
        keys, np.zeros(len(keys), np.uint8), types, strings, grid, stats,
        np.zeros(0, BIRTH_TYPE), np.zeros(len(keys), np.int64), stored=False,
    )  # fmt: skip


def padded(data: BucketData, grid: Grid) -> BucketData:
    """The data on a wider `grid` of the same step, with empty buckets where it had none."""
    left = (data.grid.start_ms - grid.start_ms) // grid.step_ms
    right = (grid.end_ms - data.grid.end_ms) // grid.step_ms
    if left == 0 and right == 0:
        return data
    stats = {name: np.pad(matrix, ((0, 0), (left, right))) for name, matrix in data.stats.items()}
    return replace(data, grid=grid, stats=stats, first_held=data.first_held + left)


def numeric(types: Types) -> Bools:
    """(series,) that numbers can be made of."""
    return np.asarray(types != STRING)
