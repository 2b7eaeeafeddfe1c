"""Cells (values of a matrix, see artimon/compute/cells.py) and keys (names and labels of series)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Floats,
    Ints,
    Types,
    as_floats,
    doubles,
    is_whole_number,
    of_type,
    take,
)
from artimon.compute.function import Example

Rows = npt.NDArray[np.intp]


class SeriesKey(NamedTuple):
    """Name and labels of a series, labels as sorted pairs; sorting keys gives the canonical order."""

    name: str
    labels: tuple[tuple[str, str], ...]

    def get(self, label: str) -> str:
        """Return the value of a label, the name for `__name__`, "" if absent."""
        if label == "__name__":
            return self.name
        for name, value in self.labels:
            if name == label:
                return value
        return ""


def canonical_order(keys: Sequence[SeriesKey]) -> Rows:
    """Return the rows in the order of their keys; equal keys keep their order."""
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)


def read_only(array: Any) -> Any:
    """Return a read-only view of an array."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


__all__ = [
    "BOOLEAN",
    "DOUBLE",
    "INTEGER",
    "STRING",
    "Bools",
    "Cells",
    "Example",
    "Floats",
    "Ints",
    "Rows",
    "SeriesKey",
    "Types",
    "as_floats",
    "canonical_order",
    "doubles",
    "is_whole_number",
    "of_type",
    "read_only",
    "take",
]  # fmt: skip
