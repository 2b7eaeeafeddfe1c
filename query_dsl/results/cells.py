"""Cells (values of a matrix, see artimon/compute/cells.py) and keys (names and labels of series)."""

from __future__ import annotations

from typing import NamedTuple

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
    of_type,
    take,
    whole,
)
from artimon.compute.function import Example


class Key(NamedTuple):
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
    "Key",
    "Types",
    "as_floats",
    "doubles",
    "of_type",
    "take",
    "whole",
]
