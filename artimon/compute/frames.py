"""Where a window lies in the columns of a wider grid, and sums and extremes over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Floats, Ints

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Frame:
    """Output j looks at columns (ends[j] - width, ends[j]] of the data, that is at (s_ms[j], t_ms[j]] in time."""

    ends: Ints
    """(outputs,) last column of each window"""
    width: int
    end_ms: Ints
    """(outputs,) time at which each window ends"""
    width_ms: int
    max_gap_ms: int
    after_ms: int = 0
    """How far each window reaches beyond the time that its result is shown at."""

    @property
    def starts(self) -> Ints:
        """(outputs,) the column just before each window; may be -1 or less."""
        return self.ends - self.width

    @property
    def start_ms(self) -> Ints:
        return self.end_ms - self.width_ms


def over(matrix: npt.NDArray[T], frame: Frame) -> npt.NDArray[T]:
    """(series, outputs, width) view of every window; each must lie inside the data."""
    view = np.lib.stride_tricks.sliding_window_view(matrix, frame.width, axis=1)
    return np.asarray(view[:, frame.starts + 1, :]) if _gaps(frame) else _contiguous(view, frame)


def _gaps(frame: Frame) -> bool:
    return len(frame.ends) > 1 and int(frame.ends[1] - frame.ends[0]) != 1


def _contiguous(view: npt.NDArray[T], frame: Frame) -> npt.NDArray[T]:
    first = int(frame.starts[0]) + 1
    return view[:, first : first + len(frame.ends), :]


def totals(counts: Ints, frame: Frame) -> Ints:
    """(series, outputs) sum over each window; exact, integers only."""
    if frame.width == 1:
        return np.asarray(counts[:, frame.ends], np.int64)
    run = np.zeros((len(counts), counts.shape[1] + 1), np.int64)
    np.cumsum(counts, axis=1, out=run[:, 1:])
    return np.asarray(run[:, frame.ends + 1] - run[:, frame.starts + 1])


def float_totals(values: Floats, frame: Frame) -> Floats:
    """(series, outputs) sum over each window, each added up afresh from its oldest bucket on: no drift, NaN and inf
    stay in their windows, and the same bits however the array lies in memory."""
    first = frame.starts + 1
    out = values[:, first].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        for column in range(1, frame.width):
            out += values[:, first + column]
    return out


def newest(present: Bools) -> Ints:
    """(series, columns) index of the newest present column at or before each, -1 where there is none."""
    columns = np.where(present, np.arange(present.shape[1], dtype=np.int64), -1)
    return np.maximum.accumulate(columns, axis=1)


def oldest(present: Bools) -> Ints:
    """(series, columns) index of the oldest present column at or after each, `columns` where there is none."""
    n = present.shape[1]
    columns = np.where(present, np.arange(n, dtype=np.int64), n)
    return np.minimum.accumulate(columns[:, ::-1], axis=1)[:, ::-1]


def pick(matrix: npt.NDArray[T], columns: Ints) -> npt.NDArray[T]:
    """matrix[i, columns[i, j]]; columns out of range give any cell, which the caller masks."""
    return np.take_along_axis(matrix, np.clip(columns, 0, matrix.shape[1] - 1), axis=1)
