"""Total order of samples of one series at equal times: the greater value is the last, in any order of arrival.

Numbers are ordered by value (doubles: -NaN < -inf … inf < NaN, -0.0 < 0.0), strings by code points."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType

Cells = npt.NDArray[np.int64]
_MAGNITUDE = np.int64(2**63 - 1)


class TextTable(Protocol):
    """Strings by the index in STRING cells."""

    def __getitem__(self, number: int, /) -> str: ...


class TypeBounds(NamedTuple):
    """Bounds of rows sorted by type: [0, ints) INTEGER or BOOLEAN, [ints, doubles) DOUBLE, the rest STRING."""

    ints: int
    doubles: int

    def select(self, keep: npt.NDArray[np.bool_]) -> TypeBounds:
        """Return the bounds of the rows that `keep` selects."""
        return TypeBounds(int(np.count_nonzero(keep[: self.ints])), int(np.count_nonzero(keep[: self.doubles])))


def double_order(cells: Cells) -> Cells:
    """Map the bits of doubles to integers of the same order."""
    ordered: Cells = cells ^ ((cells >> 63) & _MAGNITUDE)
    return ordered


def rank(cells: Cells, double: npt.NDArray[np.bool_] | bool) -> Cells:
    """Return integers in the order of the values: of two samples at one time the greater is last, as in shards."""
    if isinstance(double, bool):
        return double_order(cells) if double else cells
    return np.where(double, double_order(cells), cells)


def replaces(new: Cells, old: Cells, bounds: TypeBounds, texts: TextTable) -> npt.NDArray[np.bool_]:
    """Return the mask (n,) of cells of `new` that replace `old` at equal times."""
    better: npt.NDArray[np.bool_] = new > old
    doubles = slice(bounds.ints, bounds.doubles)
    better[doubles] = double_order(new[doubles]) > double_order(old[doubles])
    for i in range(bounds.doubles, len(new)):
        better[i] = new[i] != old[i] and texts[int(new[i])] > texts[int(old[i])]
    return better


def replaces_mixed(new: Cells, old: Cells, kinds: npt.NDArray[np.uint8], texts: TextTable) -> npt.NDArray[np.bool_]:
    """`replaces` for rows in any order, with the type codes in `kinds`."""
    doubles, strings = kinds == ValueType.DOUBLE, kinds == ValueType.STRING
    better: npt.NDArray[np.bool_] = new > old
    better[doubles] = double_order(new[doubles]) > double_order(old[doubles])
    better[strings] = replaces(new[strings], old[strings], TypeBounds(0, 0), texts)
    return better


def ranks(cells: Cells, bounds: TypeBounds, texts: TextTable) -> Cells:
    """Return sort keys in this order; comparable within one type."""
    ranks = cells.copy()
    doubles = slice(bounds.ints, bounds.doubles)
    ranks[doubles] = double_order(cells[doubles])
    ids = sorted({int(cell) for cell in cells[bounds.doubles :]}, key=texts.__getitem__)
    place = {id: rank for rank, id in enumerate(ids)}
    ranks[bounds.doubles :] = [place[int(cell)] for cell in cells[bounds.doubles :]]
    return ranks
