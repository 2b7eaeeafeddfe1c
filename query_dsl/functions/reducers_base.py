"""Base of the reducers, and their input: series grouped by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import take
from artimon.compute.checkpoint import checkpoint
from query_dsl.functions.registry import Args, Entry
from query_dsl.results.result_cells import Bools, Cells, Floats, Ints, Rows, SeriesKey, as_floats

Column = TypeVar("Column", bound=npt.NDArray[Any])
GIVEN = ((1.0, None, 2.0), (4.0, None, None))
"""Input series of most examples."""
BLOCK_CELLS = 2_000_000
"""Maximum number of values sorted together; bounds memory."""


@dataclass(frozen=True)
class ClassMembers:
    """Series sorted by class, in canonical order within one. No class is empty."""

    keys: Sequence[SeriesKey]
    """Key of each series."""
    column: Cells
    codes: Ints
    """Class number of each series, (series,), ascending."""
    classes: tuple[SeriesKey, ...]
    strings: tuple[str, ...]
    note: Callable[[str], None]
    """Adds a note to the answer."""

    @cached_property
    def starts(self) -> Ints:
        """First row of each class, (classes,)."""
        return np.flatnonzero(np.diff(self.codes, prepend=-1))

    @cached_property
    def sizes(self) -> Ints:
        """Number of series in each class, (classes,), with or without values."""
        return np.diff(np.append(self.starts, len(self.codes)))

    @cached_property
    def counts(self) -> Ints:
        """Number of members with a value, (classes, n)."""
        return np.add.reduceat(self.column.present, self.starts, axis=0, dtype=np.int64)

    @cached_property
    def floats(self) -> Floats:
        """Values as float64, (series, n); arbitrary where missing."""
        return as_floats(self.column.types, self.column.cells)

    def every(self, of_class: Column) -> Column:
        """Repeat a value per class for each member."""
        return np.repeat(of_class, self.sizes, axis=0)  # type: ignore[return-value]

    def first(self, chosen: Bools) -> tuple[Rows, Bools]:
        """Return the first row of each class where `chosen` is true, (classes, n), and a mask of valid rows."""
        n = len(self.codes)
        rows = np.where(chosen, np.arange(n, dtype=np.int32)[:, None], np.int32(n))
        found = np.minimum.reduceat(rows, self.starts, axis=0)
        return np.minimum(found, n - 1).astype(np.intp), found < n

    def blocks(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield blocks of classes of equal size, bounded by BLOCK_CELLS: class numbers (k,), member rows (k, size)."""
        order = np.argsort(self.sizes, kind="stable")
        bounds = np.flatnonzero(np.diff(self.sizes[order], prepend=-1)).tolist()
        for start, stop in zip(bounds, [*bounds[1:], len(order)], strict=True):
            size = int(self.sizes[order[start]])
            each = max(1, BLOCK_CELLS // max(1, size * self.column.cells.shape[1]))
            for begin in range(start, stop, each):
                checkpoint()
                chosen = order[begin : min(begin + each, stop)]
                yield chosen, self.starts[chosen][:, None] + np.arange(size)

    def only(self, rows: Bools) -> ClassMembers:
        """Select series. `starts`, `sizes` and `counts` are invalid if a class loses all its members."""
        keys = [key for key, kept in zip(self.keys, rows.tolist(), strict=True) if kept]
        return ClassMembers(keys, take(self.column, rows), self.codes[rows], self.classes, self.strings, self.note)


class Reduced(NamedTuple):
    """Result of a reducer: one row per class, or rows with explicit `keys` and their classes `codes`. The caller
    applies `min_count` and `nulls`. `sparse`: rows without values are dropped."""

    column: Cells
    strings: tuple[str, ...] = ()
    keys: Sequence[SeriesKey] | None = None
    codes: Ints | None = None
    sparse: bool = False


@dataclass(frozen=True, kw_only=True)
class Reducer(Entry):
    """Combines the series of a class to one, bucket by bucket, or selects some of them. Buckets with fewer values than
    `min_count` are masked."""

    run: Callable[[ClassMembers, Args], Reduced] | None = None
    """None if the result is computed from partials."""
    pushed: str = ""
    """Name of the partial that a store can compute (artimon/compute/partials.py)."""
    from_partial: Callable[[Cells], Cells] | None = None
    """Converts the result of the partial, if it is not the final result."""
    min_count: int = 1
    """Default of `min_count`."""
    total: bool = False
    """True if a bucket without values has a result when `min_count` is 0 (0 for sum and count)."""
    strings: bool = False
    """True if STRING series are accepted."""
    one_kind: bool = False
    """True if a class must not mix STRING with numbers: STRING series are dropped from mixed classes."""
    carried: str = ""
    """Name of the argument with a label that at least one series must have."""
    split: str = ""
    """Name of the argument with a label that distinguishes members of a class; classes exclude it."""
    one_per_class: bool = True
    """True if the result has one series per class, with the labels of the class; False if members keep their keys."""
