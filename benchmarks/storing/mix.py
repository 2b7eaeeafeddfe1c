"""Samples of a whole stack over ninety minutes, 849 series of 15 sources, which copies can extend to days.

mix.parquet holds the samples behind `storage.mixed` of docs/benchmarks.md: polls every 60 s of the host, the JVMs of
HDFS, the shop and its visitors, and the stack's own parts. After its last minute a series repeats; a series that never
fell continues from its last value instead, so that counters stay counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

Ints = npt.NDArray[np.int64]
FILE = Path(__file__).with_name("mix.parquet")
MINUTES = 91
MINUTE_MS = 60_000
SHIFT = 7
"""Minutes by which each copy is ahead of the previous one."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Recorded samples as arrays of (series,) or (MINUTES, series)."""

    doubles: npt.NDArray[np.bool_]
    cells: Ints
    """int64, or the bits of a double."""
    offsets_ms: Ints
    """Offsets of the samples from the start of their minute."""
    growth: Ints
    """Growth in MINUTES of a series that never fell, int64 or the bits of a double; else zero."""

    @property
    def series(self) -> int:
        return len(self.doubles)

    def minute(self, number: int, copies: int) -> tuple[Ints, Ints]:
        """Return cells and offsets of all copies in one minute, each (copies, series)."""
        at = number + SHIFT * np.arange(copies)
        laps, rows = (at // MINUTES)[:, None], at % MINUTES
        cells: Ints = self.cells[rows]
        grows = self.growth != 0
        ints, doubles = np.flatnonzero(grows & ~self.doubles), np.flatnonzero(grows & self.doubles)
        cells[:, ints] += laps * self.growth[ints]
        more = laps * self.growth[doubles].view(np.float64)
        cells[:, doubles] = (cells[:, doubles].view(np.float64) + more).view(np.int64)
        return cells, self.offsets_ms[rows]


def load() -> Mix:
    """Load the file; series that missed a poll repeat their last sample at the end."""
    table = pq.read_table(FILE)
    series, times = table["series"].to_numpy(), table["time"].to_numpy()
    starts = np.flatnonzero(np.append(True, series[1:] != series[:-1]))
    lengths = np.diff(np.append(starts, len(series)))
    at = starts + np.minimum(np.arange(MINUTES)[:, None], lengths - 1)
    is_double = table["double"].is_valid().to_numpy()
    cells = np.where(
        is_double,
        table["double"].fill_null(0).to_numpy().view(np.int64),
        table["integer"].fill_null(0).to_numpy(),
    )
    doubles = is_double[starts]
    held = cells[at]
    growth = np.where(doubles, _growth(held.view(np.float64)).view(np.int64), _growth(held))
    return Mix(doubles, held, times[at].astype(np.int64) % MINUTE_MS, growth)


def _growth(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    steps = np.diff(values, axis=0)
    grown = values[-1] - values[0] + steps[-1]
    with np.errstate(all="ignore"):
        growth: npt.NDArray[Any] = np.where((steps >= 0).all(axis=0) & (grown > 0), grown, 0).astype(values.dtype)
    return growth
