"""Statistics of buckets in arrays, and the values that window functions make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Cells, Ints, Types
from artimon.model.grid import Grid


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """`stats`: arrays of shape (series, grid.n), zero where `count` is; `lives` has dtype BIRTH_TYPE and is sorted by
    (row, birth)."""

    kinds: Types
    types: Types
    grid: Grid
    stats: Mapping[str, Ints]
    lives: npt.NDArray[np.void]
    ended_ms: Ints
    """(series,) when the source said that the series ended; 0 where it goes on."""
    first_held: int = 0
    """Columns before this one are not in the store at all: empty here, yet nobody knows what was in them."""
    stored: bool = True
    """False where the values were computed: no births, one value a bucket, at its end."""

    @property
    def rows(self) -> int:
        """How many series."""
        return len(self.types)

    @property
    def present(self) -> Bools:
        """(series, grid.n) where a bucket holds a sample."""
        return np.asarray(self.stats["count"] > 0)


def padded_stats(stats: Mapping[str, Ints], left: int, right: int) -> dict[str, Ints]:
    """The same with `left` and `right` empty columns more."""
    if not (left or right):
        return dict(stats)
    return {name: np.pad(matrix, ((0, 0), (left, right))) for name, matrix in stats.items()}


@dataclass(frozen=True, slots=True)
class Mapped:
    """Cells of (series, outputs), and where they are approximate because a bucket held more than one sample."""

    column: Cells
    approximate: Bools | None = None
