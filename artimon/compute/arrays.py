"""Arrays of bucket statistics, the input of window functions, and their output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Cells, Ints, Types
from artimon.model.grid import Grid


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Input of a window function. `stats`: arrays of shape (series, grid.n), 0 wherever `count` is 0. `lives`:
    incarnations, dtype BIRTH_TYPE, sorted by (row, birth)."""

    kinds: Types
    types: Types
    grid: Grid
    stats: Mapping[str, Ints]
    lives: npt.NDArray[np.void]
    ended_ms: Ints
    """(series,) time of the end marker; 0 for series that continue."""
    first_held: int = 0
    """Earlier columns are not in the store: they are empty here, but their content is unknown."""
    stored: bool = True
    """False for computed values: no start times, one value per bucket, at its end."""

    @property
    def rows(self) -> int:
        """Number of series."""
        return len(self.types)

    @property
    def present(self) -> Bools:
        """(series, grid.n) mask of the buckets that hold a sample."""
        return np.asarray(self.stats["count"] > 0)

    def chosen(self, rows: npt.NDArray[np.intp] | slice, lives: npt.NDArray[np.void]) -> Arrays:
        """Return these series, with C-ordered arrays. `lives`: their incarnations, by their new rows."""
        stats = {name: np.ascontiguousarray(matrix[rows]) for name, matrix in self.stats.items()}
        ended_ms = self.ended_ms[rows]
        return replace(
            self, kinds=self.kinds[rows], types=self.types[rows], stats=stats, lives=lives, ended_ms=ended_ms
        )


def picked_lives(lives: npt.NDArray[np.void], rows: npt.NDArray[np.intp], of: int) -> npt.NDArray[np.void]:
    """Return the incarnations of the series `rows` (of `of` in all), renumbered in this order."""
    place = np.full(of, -1, np.int64)
    place[rows] = np.arange(len(rows))
    kept: npt.NDArray[np.void] = lives[place[lives["row"]] >= 0]
    kept["row"] = place[kept["row"]]
    return kept[np.lexsort((kept["birth_ms"], kept["row"]))]


def padded_stats(stats: Mapping[str, Ints], left: int, right: int) -> dict[str, Ints]:
    """Pad statistics with `left` and `right` empty columns."""
    if not (left or right):
        return dict(stats)
    return {name: np.pad(matrix, ((0, 0), (left, right))) for name, matrix in stats.items()}


@dataclass(frozen=True, slots=True)
class Mapped:
    """Output of a window function: cells of (series, outputs), and a mask of the ones that are approximate, or missing,
    because a bucket held more than one sample."""

    column: Cells
    approximate: Bools | None = None
