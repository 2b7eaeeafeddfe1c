"""Input of window functions: statistics of buckets, read from a store or derived from a computed matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.compute.arrays import Arrays, padded_stats, picked_lives
from artimon.compute.statistics import from_samples
from artimon.compute.succession import normalize_incarnations
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE, Buckets
from artimon.model.series_table import SeriesTable
from query_dsl.results.label_table import keys_of
from query_dsl.results.result_cells import STRING, Bools, Cells, Rows, SeriesKey, Types


@dataclass(frozen=True, kw_only=True)
class BucketData(Arrays):
    """Arrays with the keys of their series, in canonical order."""

    keys: tuple[SeriesKey, ...]
    strings: tuple[str, ...]

    def shifted(self, ms: int) -> BucketData:
        """Return the data with all times moved `ms` later."""
        stats = dict(self.stats)
        if "last_time" in stats:
            stats["last_time"] = stats["last_time"] + ms
        lives = self.lives.copy()
        for name in ("birth_ms", "first_ms", "last_ms"):
            lives[name] += ms
        ended = np.where(self.ended_ms > 0, self.ended_ms + ms, 0)
        grid = Grid(self.grid.end_ms + ms, self.grid.step_ms, self.grid.n)
        return replace(self, grid=grid, stats=stats, lives=lives, ended_ms=ended)

    def select_rows(self, rows: Rows) -> BucketData:
        """Select series, in the order of `rows`."""
        if len(rows) == len(self.keys) and (rows == np.arange(len(rows))).all():
            return self
        return replace(
            self,
            keys=tuple(map(self.keys.__getitem__, rows.tolist())),
            kinds=self.kinds[rows],
            types=self.types[rows],
            stats={name: matrix.T.take(rows, axis=1).T for name, matrix in self.stats.items()},  # layout of shards
            lives=picked_lives(self.lives, rows, len(self.keys)),
            ended_ms=self.ended_ms[rows],
        )


def from_buckets(buckets: Buckets) -> BucketData:
    """Convert the answer of a store; series keep their order."""
    table, n = SeriesTable.from_series(buckets.series), len(buckets.series)
    ended = buckets.ended_ms if len(buckets.ended_ms) == n else np.zeros(n, np.int64)
    return BucketData(
        keys=tuple(keys_of(*zip(*table.texts(), strict=True))) if n else (),
        kinds=table.kinds,
        types=table.types,
        strings=buckets.strings,
        grid=buckets.grid,
        stats={name: np.asarray(matrix, np.int64) for name, matrix in buckets.statistics.items()},
        lives=normalize_incarnations(buckets.births),
        ended_ms=np.asarray(ended, np.int64),
    )


def from_cells(keys: tuple[SeriesKey, ...], grid: Grid, column: Cells, strings: tuple[str, ...]) -> BucketData:
    """Convert computed values to buckets with one sample each, at the end of the bucket."""
    types, cells, present = column
    return BucketData(
        keys=keys,
        kinds=np.zeros(len(keys), np.uint8),
        types=types,
        strings=strings,
        grid=grid,
        stats=from_samples(cells, present, grid.ends()[None, :]),
        lives=np.zeros(0, INCARNATION_DTYPE),
        ended_ms=np.zeros(len(keys), np.int64),
        stored=False,
    )


def padded(data: BucketData, grid: Grid) -> BucketData:
    """Extend the data to a wider `grid` of the same step; added buckets are empty."""
    left = (data.grid.start_ms - grid.start_ms) // grid.step_ms
    right = (grid.end_ms - data.grid.end_ms) // grid.step_ms
    if left == 0 and right == 0:
        return data
    return replace(data, grid=grid, stats=padded_stats(data.stats, left, right), first_held=data.first_held + left)


def share_equal_texts(data: BucketData) -> BucketData:
    """Map equal texts to one cell, so that cells of STRING can be compared."""
    texts = np.flatnonzero(data.types == STRING)
    if not len(texts) or len(set(data.strings)) == len(data.strings):
        return data
    places = {text: i for i, text in enumerate(reversed(data.strings))}
    last = len(data.strings) - 1
    first = np.array([last - places[text] for text in data.strings], np.int64)
    cells = data.stats["last"].copy()
    cells[texts] = np.where(data.present[texts], first[np.where(data.present[texts], cells[texts], 0)], 0)
    return replace(data, stats={**data.stats, "last": cells})


def is_numeric(types: Types) -> Bools:
    """Return a mask (series,) of the series with numeric types."""
    return np.asarray(types != STRING)
