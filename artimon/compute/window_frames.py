"""Windows as ranges of columns of a grid, and sums and extremes over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.checkpoint import checkpoint

T = TypeVar("T", bound=np.generic)
FOLD_CELLS = 1 << 24
"""Cells of all windows that `window_folds` reads between two checkpoints: some 20 ms."""


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """Window j covers columns (ends[j] - width, ends[j]] of the data, in time (start_ms[j], end_ms[j]]."""

    ends: Ints
    """(outputs,) last column of each window"""
    width: int
    end_ms: Ints
    """(outputs,) end time of each window"""
    width_ms: int
    max_gap_ms: int
    lookahead_ms: int = 0
    """Extent of each window beyond the time stamp of its result."""

    @property
    def starts(self) -> Ints:
        """(outputs,) column just before each window; may be negative."""
        return self.ends - self.width

    @property
    def start_ms(self) -> Ints:
        return self.end_ms - self.width_ms


def window_view(matrix: npt.NDArray[T], frame: WindowFrame) -> npt.NDArray[T]:
    """Return a view (series, outputs, width) of every window; each must lie inside the data."""
    view = np.lib.stride_tricks.sliding_window_view(matrix, frame.width, axis=1)
    return np.asarray(view[:, frame.starts + 1, :]) if _has_gaps(frame) else _contiguous(view, frame)


def window_folds(join: np.ufunc, matrix: npt.NDArray[T], frame: WindowFrame) -> npt.NDArray[T]:
    """Return the reduction of every window by `join`, (series, outputs)."""
    out = np.empty((len(matrix), len(frame.ends)), matrix.dtype)
    each = max(1, FOLD_CELLS // max(1, len(frame.ends) * frame.width))
    for start in range(0, len(matrix), each):
        checkpoint()
        rows = slice(start, start + each)
        join.reduce(window_view(matrix[rows], frame), axis=2, out=out[rows])
    return out


def _has_gaps(frame: WindowFrame) -> bool:
    return bool((np.diff(frame.ends) != 1).any())


def _contiguous(view: npt.NDArray[T], frame: WindowFrame) -> npt.NDArray[T]:
    first = int(frame.starts[0]) + 1
    return view[:, first : first + len(frame.ends), :]


def integer_totals(counts: Ints, frame: WindowFrame) -> Ints:
    """Return exact sums of integers over each window, (series, outputs); of one bucket it may be a view of `counts`."""
    if frame.width == 1:
        apart = _has_gaps(frame) or not len(frame.ends)
        return np.asarray(counts[:, frame.ends if apart else slice(frame.ends[0], frame.ends[-1] + 1)], np.int64)
    run = np.zeros((counts.shape[1] + 1, len(counts)), np.int64)  # bucket by bucket, as shards send them
    np.cumsum(counts.T, axis=0, out=run[1:])
    return (run[frame.ends + 1] - run[frame.starts + 1]).T


def float_totals(values: Floats, frame: WindowFrame) -> Floats:
    """Return the sum over each window, (series, outputs). Each window is summed separately from its oldest bucket on:
    no drift, no NaN or inf from other windows, and results independent of the memory layout."""
    first = frame.starts + 1
    out = values[:, first].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        for column in range(1, frame.width):
            checkpoint()
            out += values[:, first + column]
    return out


def newest_present(present: Bools) -> Ints:
    """Return the index of the newest present column at or before each, -1 if there is none; (series, columns)."""
    columns = np.where(present, np.arange(present.shape[1], dtype=np.int64), -1)
    return np.maximum.accumulate(columns, axis=1)


def oldest_present(present: Bools) -> Ints:
    """Return the index of the oldest present column at or after each, `columns` if there is none; (series, columns)."""
    n = present.shape[1]
    columns = np.where(present, np.arange(n, dtype=np.int64), n)
    return np.minimum.accumulate(columns[:, ::-1], axis=1)[:, ::-1]


def pick(matrix: npt.NDArray[T], columns: Ints) -> npt.NDArray[T]:
    """Return matrix[i, columns[i, j]]; columns out of range give arbitrary cells, which the caller masks."""
    return np.take_along_axis(matrix, np.clip(columns, 0, matrix.shape[1] - 1), axis=1)
