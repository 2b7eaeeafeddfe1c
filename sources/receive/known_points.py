"""Points of OTLP whose series a sender sent before, by their bytes: known_points.c, built by the C compiler of the
machine.

`point_kernels()` is None without a compiler or a library that was built before; then a dictionary has the keys."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.runtime.compiled_library import ADDRESS, INT, NOT_AVAILABLE, address, build_library, folder_of, typed
from sources.receive.key_table import UNKNOWN, KeyTable, TableKernels
from sources.receive.received_columns import MAX_BODY_SAMPLES
from sources.state.start_times import Flags, Ints

SOURCE = Path(__file__).with_suffix(".c")
_NUMBERS = ("column", "time_ms", "birth_ms", "cell", "line")


class FoundPoints(NamedTuple):
    """Mask of the points of a body that are not known, and the samples of the others."""

    missed: Flags
    column: Ints
    time_ms: Ints
    cell: Ints
    type: npt.NDArray[np.uint8]
    line: Ints
    birth_ms: Ints
    delta: Flags


class _PointArrays(ctypes.Structure):
    _fields_ = (
        *((name, INT) for name in ("most", "points", "samples")),
        *((name, ADDRESS) for name in ("place", "columns", *_NUMBERS, "type", "delta")),
    )


class PointKernels(TableKernels):
    """Functions of the library."""

    def __init__(self) -> None:
        super().__init__(SOURCE)
        whole = ctypes.c_int32
        self.read_points = typed(self.library.read_points, whole, ADDRESS, INT, ADDRESS, ADDRESS, whole)


@cache
def point_kernels() -> PointKernels | None:
    """Return the functions, built if necessary; None if they are not available."""
    try:
        return PointKernels()
    except NOT_AVAILABLE:
        return None


class KnownPoints(KeyTable):
    """Columns of the samples of each point.

    `_columns`: columns of the samples of a point one after another; the table has the place of the first one, and the
    numbers of resources, scopes and metrics."""

    def __init__(self, kernels: PointKernels) -> None:
        super().__init__(kernels)
        self._read_points = kernels.read_points
        self._columns: Ints = np.zeros(0, np.int64)

    @property
    def key_bytes(self) -> int:
        return super().key_bytes + self._columns.nbytes

    def read(self, body: bytes) -> FoundPoints | None:
        """Look up the points of a body. None: it is damaged, or has other fields or too many points or samples."""
        most = min(MAX_BODY_SAMPLES, len(body) // 2)
        numbers = np.empty((6, most), np.int64)
        place, column, time_ms, birth_ms, cell, line = numbers
        type_, delta = np.empty((2, most), np.uint8)
        arrays = (place, self._columns, column, time_ms, birth_ms, cell, line, type_, delta)
        points = _PointArrays(most, 0, 0, *[address(one) for one in arrays])
        if self._read(body, points, adds=False) < 0:
            return None
        kept = np.flatnonzero(column[: points.samples] >= 0)
        missed = place[: points.points] == UNKNOWN
        column, time_ms, birth_ms, cell, line = numbers[1:, kept]
        is_delta = delta[kept].view(np.bool_)
        return FoundPoints(missed, column, time_ms, cell, type_[kept], line, birth_ms, is_delta)

    def remember(self, body: bytes, count: int, columns: Mapping[int, Sequence[int]]) -> None:
        """Remember points of a body that was read and has `count` of them. `columns`: those of the samples of each, by
        its place."""
        place: Ints = np.full(count, UNKNOWN, np.int64)
        sizes = np.fromiter(map(len, columns.values()), np.int64, len(columns))
        place[list(columns)] = len(self._columns) + np.cumsum(sizes) - sizes
        more = np.fromiter(chain.from_iterable(columns.values()), np.int64)
        points, before = _PointArrays(most=len(place), place=address(place)), len(self)
        self.retry(lambda: self._read(body, points, adds=True))
        if len(self) > before:  # forms that have no key come again and again
            self._columns = np.concatenate((self._columns, more))

    def _read(self, body: bytes, points: _PointArrays, adds: bool) -> int:
        return int(self._read_points(self.reference, len(body), body, ctypes.byref(points), adds))


if __name__ == "__main__":
    print(build_library(SOURCE, folder_of(SOURCE)))
