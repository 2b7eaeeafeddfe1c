"""Rolling window functions: bucket by bucket over many series at once, with only the state that open windows need.

Columns are pushed in order of time; after the last column of a window its values are read. No step is per series, so
many series take a tenth of the time of whole matrices (matrix_columns.py)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.params import Args
from artimon.compute.statistics import MAX, MIN, SUM, Fold
from artimon.compute.window_frames import WindowFrame

MaskOrBool = Bools | bool
"""Mask of series: True for all, False for none, or an array (series,)."""
Counts = npt.NDArray[np.integer]
_EXACT = 2.0**62


class MatrixNeeded(Exception):
    """Only the form for whole matrices supports these windows, such as sums of integers that must be rounded."""


class BucketColumn(Protocol):
    """One bucket of every series. Cells of absent series are arbitrary."""

    @property
    def present(self) -> MaskOrBool:
        """Series with a sample; at least one."""
        ...

    @property
    def count(self) -> Counts | None:
        """(series,) number of samples; None: one for each present series."""
        ...

    def cells(self, statistic: str) -> Ints:
        """Return the cells of a statistic, (series,), possibly a read-only view."""
        ...


@dataclass(frozen=True, slots=True)
class ClassOrder:
    """Members in the order of their classes. `starts`: first place of each class."""

    order: npt.NDArray[np.intp]
    starts: Ints


@dataclass(frozen=True, kw_only=True)
class RollingContext:
    """Properties shared by all columns."""

    frame: WindowFrame
    rows: int
    """Number of series."""
    step_ms: int
    start_ms: int
    """Left edge of the first column."""
    double: MaskOrBool
    """Series that are DOUBLE."""
    members: MaskOrBool = True
    """Relevant series; results of the others are arbitrary."""
    counter: MaskOrBool = False
    """Series that are counters."""
    ended_ms: Ints | None = None
    """(series,) end times of series, 0 for series that continue; None: all continue."""
    incarnations: npt.NDArray[np.void] | None = None
    """BIRTH_TYPE, sorted by (row, birth)."""
    first_held: int = 0
    args: Args = field(default_factory=dict)
    summed: ClassOrder | None = None
    """Classes whose sums are wanted alone, so that a function may compute them without the values of the series."""


class WideIntegers(NamedTuple):
    """Results of INTEGER series that int64 does not hold, as doubles."""

    rows: npt.NDArray[np.intp]
    values: Floats


class WindowValues(NamedTuple):
    """Values of one window."""

    cells: Ints
    present: MaskOrBool
    approximate: npt.NDArray[np.intp] | None = None
    """Series whose values are approximate, or missing for the same reason."""
    wide: WideIntegers | None = None
    """Values beyond int64; their `cells` are arbitrary."""
    sums: Floats | None = None
    """(classes,) sums of `RollingContext.summed` over all series; `cells` are then arbitrary."""


def intersect(a: MaskOrBool, b: MaskOrBool) -> MaskOrBool:
    """Return the intersection of two masks."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return a & b


def simplify_mask(mask: Bools) -> MaskOrBool:
    """Return True for a mask that is all true, else the mask."""
    return True if mask.all() else mask


class Rolling:
    """Base class with the last `width` columns. Subclasses keep the state that they need."""

    def __init__(self, span: RollingContext) -> None:
        self.span, self.width = span, span.frame.width
        self.at = -1
        """Index of the newest column."""
        self.window: deque[BucketColumn | None] = deque(maxlen=self.width)
        self.newest: Ints | int = -1
        """(series,) index of the newest column that holds a sample."""

    def push(self, column: BucketColumn | None) -> None:
        """Push the next column; None: it is empty. Raises MatrixNeeded."""
        self.at += 1
        self.window.append(column)
        if column is not None:
            present = column.present
            self.newest = self.at if present is True else np.where(present, self.at, self.newest)
        self.update(column)

    def update(self, column: BucketColumn | None) -> None:
        """Update the state of the function with a column."""

    def skip(self) -> None:
        """Skip a column whose result the caller has already. Only for windows of one column."""
        self.at += 1

    @property
    def output(self) -> int:
        """Index of the window that ends with the newest column."""
        return int(np.searchsorted(self.span.frame.ends, self.at))

    def result(self) -> WindowValues:
        """Return the values of the window that ends with the newest column."""
        raise NotImplementedError

    def has_samples(self) -> MaskOrBool:
        """Return the series with a sample in the window."""
        start = self.at - self.width
        newest = self.newest
        return newest > start if isinstance(newest, int) else simplify_mask(newest > start)

    def counts(self) -> Ints | int:
        """Return the number of samples in the window, (series,); one number if equal for all."""
        everywhere, arrays = 0, list[npt.NDArray[Any]]()
        for column in self.window:
            if column is None:
                continue
            if column.count is not None:
                arrays.append(column.count)
            elif isinstance(column.present, bool):
                everywhere += 1
            else:
                arrays.append(column.present)
        if not arrays:
            return everywhere
        total = np.full(self.span.rows, everywhere, np.int64)
        for array in arrays:
            total += array
        return total

    def has_no_gaps(self) -> MaskOrBool:
        """Return the series without empty buckets in the window."""
        found: MaskOrBool = True
        for column in self.window:
            found = intersect(found, False if column is None else column.present)
        return found

    def empty_result(self) -> WindowValues:
        """Return a result without values."""
        return WindowValues(np.zeros(self.span.rows, np.int64), False)

    def select_by_type(self, ints: Ints | None, floats: Floats | None) -> Ints:
        """Return cells with the DOUBLE series from `floats` and the others from `ints`."""
        double = self.span.double
        if ints is None or floats is None:
            return (
                floats.view(np.int64) if floats is not None else ints if ints is not None else self.empty_result().cells
            )
        return np.where(double, floats.view(np.int64), ints)


class RollingLast(Rolling):
    """Newest value."""

    def __init__(self, span: RollingContext) -> None:
        super().__init__(span)
        self._cells = np.zeros(0, np.int64)

    def update(self, column: BucketColumn | None) -> None:
        if column is None:
            return
        cells = column.cells("last")
        if column.present is True or not len(self._cells):
            self._cells = cells
        else:
            self._cells = np.where(column.present, cells, self._cells)

    def result(self) -> WindowValues:
        inside = self.has_samples()
        if inside is False:
            return self.empty_result()
        ended = self.span.ended_ms
        if ended is not None:  # after its end a series is missing, without look-back
            inside = intersect(inside, (ended <= 0) | (ended > int(self.span.frame.end_ms[self.output])))
        return WindowValues(self._cells, inside)


class RollingFirst(Rolling):
    """Last value of the oldest non-empty bucket."""

    def result(self) -> WindowValues:
        inside = self.has_samples()
        if inside is False:
            return self.empty_result()
        rows = self.span.rows
        cells, missing = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
        several: Bools | None = None
        for column in self.window:
            if column is None:
                continue
            present = column.present
            here = missing if isinstance(present, bool) else missing & present
            np.copyto(cells, column.cells("last"), where=here)
            if column.count is not None:
                several = np.zeros(rows, np.bool_) if several is None else several
                several |= here & (column.count > 1)
            if isinstance(present, bool):
                break
            missing &= ~present
        return WindowValues(cells, inside, None if several is None else np.flatnonzero(several))


class _FoldedWindow(Rolling):
    """Fold over the last `width` columns of a statistic; absent cells hold the neutral value."""

    def __init__(self, span: RollingContext, statistic: str, fold: Fold) -> None:
        super().__init__(span)
        self._statistic, self._join = statistic, fold.join
        self._columns: deque[Ints | None] = deque(maxlen=self.width)
        self._fill = fold.neutral(span.double)

    def update(self, column: BucketColumn | None) -> None:
        if column is None:
            self._columns.append(None)
            return
        cells = column.cells(self._statistic)
        if column.present is not True:
            cells = np.where(column.present, cells, self._fill)
        self._columns.append(cells)

    def fold_window(self) -> tuple[Ints | None, Floats | None]:
        """Return the fold over the window, oldest first, as int64 and as float64; None if no series has that type."""
        held = [cells for cells in self._columns if cells is not None]
        double = self.span.double
        with np.errstate(all="ignore"):
            ints = None if double is True or not held else _over(self._join, held)
            floats = (
                None if double is False or not held else _over(self._join, [cells.view(np.float64) for cells in held])
            )
        return ints, floats


def _over(function: np.ufunc, arrays: list[Any]) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    out = function(arrays[0], arrays[1])
    for array in arrays[2:]:
        function(out, array, out=out)
    return out


class RollingExtreme(_FoldedWindow):
    """Smallest or greatest value."""

    def __init__(self, span: RollingContext, statistic: str) -> None:
        super().__init__(span, statistic, MIN if statistic == "min" else MAX)

    def result(self) -> WindowValues:
        inside = self.has_samples()
        if inside is False:
            return self.empty_result()
        return WindowValues(self.select_by_type(*self.fold_window()), inside)


class RollingSum(_FoldedWindow):
    """Sums as float64, exact for integers up to the rounding at the end; `mean` divides them."""

    def __init__(self, span: RollingContext, mean: bool) -> None:
        super().__init__(span, "sum", SUM)
        self._mean = mean

    def update(self, column: BucketColumn | None) -> None:
        super().update(column)
        cells = self._columns[-1]
        if cells is not None and self.width > 1 and self.span.double is not True and self._is_wide(cells):
            mine = intersect(self.span.members, True if self.span.double is False else ~self.span.double)
            if self._is_wide(np.where(mine, cells, 0)):
                raise MatrixNeeded

    def _is_wide(self, cells: Ints) -> bool:
        return max(float(cells.max()), -float(cells.min())) * self.width >= _EXACT

    def result(self) -> WindowValues:
        inside = self.has_samples()
        ints, floats = self.fold_window()
        if ints is None and floats is None:
            sums = np.zeros(self.span.rows)
        elif ints is None or floats is None:
            sums = floats if floats is not None else np.asarray(ints, np.float64)
        else:
            sums = np.where(self.span.double, floats, ints)
        if self._mean:
            counts = self.counts()
            if not (isinstance(counts, int) and counts == 1):
                with np.errstate(all="ignore"):
                    sums = sums / counts
        return WindowValues(sums.view(np.int64), inside)


class RollingCount(Rolling):
    """Number of samples."""

    def result(self) -> WindowValues:
        counts = self.counts()
        return WindowValues(np.full(self.span.rows, counts, np.int64) if isinstance(counts, int) else counts, True)
