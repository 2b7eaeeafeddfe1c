"""Selected rows of a table: pairs of source and series, in a range of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import STAMP

KEYS = ("source", "series", "time")
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class RowSelection(Protocol):
    """Distinct pairs `source`, `series`, and the times (after_us, until_us]."""

    source: Ints
    series: Ints
    after_us: int
    until_us: int

    def may_hold(self, least: Sequence[int], most: Sequence[int]) -> bool:
        """True if rows within these bounds (of source, series, time in us) may include a selected one."""
        ...

    def match(self, source: Ints, series: Ints, time_us: Ints) -> tuple[Ints | None, Ints]:
        """Return the indices of selected rows, None for all, and the number of the pair of each."""
        ...


Prune = Callable[[Any, RowSelection], set[str]]
"""Returns the paths of the files of an open DeltaTable that may hold selected rows."""
Select = Callable[[Ints, Ints, int, int], RowSelection]
"""Makes a selection of pairs of source and series, and times (after, until] in ms."""


def selected_pairs(selection: RowSelection, rows: Any) -> tuple[Bools, Ints]:
    """Return the mask of the selected rows of a table or batch, and the pair of each selected row."""
    source, series, time = (_numbers(rows.column(name)) for name in KEYS)
    at, pairs = selection.match(source, series, time)
    mask = np.zeros(len(rows), np.bool_)
    mask[slice(None) if at is None else at] = True
    return mask, pairs


def matching_groups(uri: str, selection: RowSelection) -> Iterator[tuple[GroupReader, int, Bools, Ints]]:
    """Yield the reader, the number, the mask and the pairs of each row group of a file with selected rows. Raises
    TableError, OSError, FileNotFoundError."""
    reader = GroupReader(uri)
    for group in range(reader.groups):
        bounds = reader.bounds(group, KEYS)
        if len(bounds) == len(KEYS):
            least, most = ([bounds[name][side] for name in KEYS] for side in (0, 1))
            if not selection.may_hold(least, most):
                continue
        mask, pairs = selected_pairs(selection, reader.read(group, KEYS))
        if len(pairs):
            yield reader, group, mask, pairs


def count_selected(uri: str, selection: RowSelection) -> int:
    """Return the number of selected rows of a file. Raises as `matching_groups`."""
    return sum(len(pairs) for _, _, _, pairs in matching_groups(uri, selection))


def _numbers(column: Any) -> Ints:
    if pa.types.is_timestamp(column.type):
        column = column.cast(STAMP)
    numbers: Ints = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
