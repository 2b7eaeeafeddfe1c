"""What a reducer is, and the classes of series that it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import take
from query_dsl.functions.registry import Args, Entry
from query_dsl.results.cells import Bools, Cells, Floats, Ints, Key, as_floats
from query_dsl.results.label_codes import Rows

Column = TypeVar("Column", bound=npt.NDArray[Any])
GIVEN = ((1.0, None, 2.0), (4.0, None, None))
"""The series of most examples."""
BLOCK_CELLS = 2_000_000
"""Values that are sorted together: what bounds the memory."""


@dataclass(frozen=True)
class Members:
    """Series sorted by class, in canonical order within one. No class is empty."""

    keys: Sequence[Key]
    """What each series is called."""
    column: Cells
    codes: Ints
    """(series,) class of each, ascending."""
    classes: tuple[Key, ...]
    strings: tuple[str, ...]
    note: Callable[[str], None]
    """Says something with the answer."""

    @cached_property
    def starts(self) -> Ints:
        """(classes,) the first row of each class."""
        return np.flatnonzero(np.diff(self.codes, prepend=-1))

    @cached_property
    def sizes(self) -> Ints:
        """(classes,) series of each class, whether they have a value or not."""
        return np.diff(np.append(self.starts, len(self.codes)))

    @cached_property
    def counts(self) -> Ints:
        """(classes, n) members that have a value."""
        return np.add.reduceat(self.column.present, self.starts, axis=0, dtype=np.int64)

    @cached_property
    def floats(self) -> Floats:
        """(series, n) values as float64; arbitrary where there is none."""
        return as_floats(self.column.types, self.column.cells)

    def every(self, of_class: Column) -> Column:
        """What was computed for each class, for each of its members."""
        return np.repeat(of_class, self.sizes, axis=0)  # type: ignore[return-value]

    def first(self, chosen: Bools) -> tuple[Rows, Bools]:
        """(classes, n) the first row of the class where `chosen`, and where there is one."""
        n = len(self.codes)
        rows = np.where(chosen, np.arange(n, dtype=np.int32)[:, None], np.int32(n))
        found = np.minimum.reduceat(rows, self.starts, axis=0)
        return np.minimum(found, n - 1).astype(np.intp), found < n

    def blocks(self) -> Iterator[tuple[Rows, Rows]]:
        """Classes of equal size, not too many at once: their numbers (k,), the rows of their members (k, size)."""
        order = np.argsort(self.sizes, kind="stable")
        bounds = np.flatnonzero(np.diff(self.sizes[order], prepend=-1)).tolist()
        for start, stop in zip(bounds, [*bounds[1:], len(order)], strict=True):
            size = int(self.sizes[order[start]])
            each = max(1, BLOCK_CELLS // max(1, size * self.column.cells.shape[1]))
            for begin in range(start, stop, each):
                chosen = order[begin : min(begin + each, stop)]
                yield chosen, self.starts[chosen][:, None] + np.arange(size)

    def only(self, rows: Bools) -> Members:
        """The chosen series. A class that keeps none has no meaning in `starts`, `sizes` and `counts`."""
        keys = [key for key, kept in zip(self.keys, rows.tolist(), strict=True) if kept]
        return Members(keys, take(self.column, rows), self.codes[rows], self.classes, self.strings, self.note)


class Reduced(NamedTuple):
    """What a reducer gives: a row for each class, or rows with `keys` of their own, `codes` being their classes.
    `min_count` and `nulls` are applied to it. `sparse`: rows without any value are left out."""

    column: Cells
    strings: tuple[str, ...] = ()
    keys: Sequence[Key] | None = None
    codes: Ints | None = None
    sparse: bool = False


@dataclass(frozen=True, kw_only=True)
class Reducer(Entry):
    """Many series of one class to one, bucket by bucket, or to a few of them. What has fewer values than `min_count` is
    masked."""

    run: Callable[[Members, Args], Reduced] | None = None
    """None where the result is that of partials."""
    pushed: str = ""
    """The partial that a store may compute (artimon/compute/classes.py)."""
    from_partial: Callable[[Cells], Cells] | None = None
    """What is made of the result of that partial, where it is another."""
    min_count: int = 1
    """What `min_count` is when the query does not say."""
    total: bool = False
    """Whether a bucket without values has a result when `min_count` is 0 (0 for sum and count)."""
    strings: bool = False
    """Whether STRING series take part."""
    one_kind: bool = False
    """Whether a class is either of STRING or of numbers: where it has both, STRING series are left out."""
    carried: str = ""
    """The argument that names a label which one of the series must have."""
    split: str = ""
    """The argument that names a label which tells members of a class apart, so that classes are without it."""
