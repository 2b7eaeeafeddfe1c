"""Types of series, and rules for samples of another type.

A series has the type of its first sample. INTEGER becomes DOUBLE once. An INTEGER sample older than the first DOUBLE
one that arrives after it is converted to DOUBLE: it is late, not a change back. Any other type is a conflict. Only
this depends on the order of arrival, which Kafka fixes for each source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells
from artimon.model.values import ValueType
from varstore.cells.lazy_memory import lazy_zeros

NO_TYPE = 0xFE

Mask = npt.NDArray[np.bool_]
TypeCodes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TypeResolution:
    """Verdict on n rows: masks of those to keep and to convert to double, and the slots that become DOUBLE now."""

    keep: Mask
    as_double: Mask
    converted: Cells


class SeriesTypes:
    """Types of all slots. Not locked: the owner's lock guards it."""

    def __init__(self, capacity: int) -> None:
        self.type_up: TypeCodes = lazy_zeros(capacity, np.uint8)
        """Type + 1 of each slot, so that untouched pages mean "none"."""
        self._double_from: Cells = lazy_zeros(capacity, np.int64)

    def types_of(self, slots: Cells) -> TypeCodes:
        """Return (n,) type codes, NO_TYPE for slots without a sample."""
        up = self.type_up.take(slots)
        return np.where(up == 0, NO_TYPE, up - 1).astype(np.uint8)

    def slots_of(self, type_: ValueType, used: int) -> Cells:
        """Return the slots below `used` that have this type."""
        return np.flatnonzero(self.type_up[:used] == type_ + 1)

    def is_typed(self, slots: Cells) -> Mask:
        """Mask of the slots that have a type."""
        known: Mask = self.type_up.take(slots) != 0
        return known

    def forget(self, slots: Cells) -> None:
        """Remove the types of these slots."""
        self.type_up[slots] = 0

    def export(self, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """Return `type` (NO_TYPE: none) and `double_from` of each slot."""
        return {"type": self.types_of(slots), "double_from": self._double_from.take(slots)}

    def load(self, slots: Cells, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Inverse of `export`."""
        type_ = columns["type"]
        self.type_up[slots] = np.where(type_ == NO_TYPE, 0, type_ + np.uint8(1))
        self._double_from[slots] = columns["double_from"]

    def resolve(self, slots: Cells, types: TypeCodes, time_ms: Cells, distinct: bool) -> TypeResolution | None:
        """Set types of new series and judge the rows; None if every row has the type of its series already."""
        held = self.type_up.take(slots)
        other = held != types + np.uint8(1)
        if not other.any():
            return None
        fresh = held == 0
        if distinct:
            self._set_types(slots[fresh], types[fresh], time_ms[fresh])
            rows = np.flatnonzero(other & ~fresh)
        else:
            rows = np.arange(len(slots))
        return self._resolve_each(rows, slots, types, time_ms) if len(rows) else None

    def _set_types(self, slots: Cells, types: TypeCodes, time_ms: Cells) -> None:
        self.type_up[slots] = types + np.uint8(1)
        self._double_from[slots] = time_ms  # only read for DOUBLE series

    def _resolve_each(self, rows: Cells, slots: Cells, types: TypeCodes, time_ms: Cells) -> TypeResolution:
        """Judge row by row, so that several samples of a series are judged in the order of the batch."""
        keep, as_double = np.ones(len(slots), np.bool_), np.zeros(len(slots), np.bool_)
        converted: list[int] = []
        for row in rows.tolist():
            slot, new, time = int(slots[row]), int(types[row]), int(time_ms[row])
            held = int(self.type_up[slot]) - 1
            if held == -1:
                self._set_types(slots[row : row + 1], types[row : row + 1], time_ms[row : row + 1])
            elif (held, new) == (ValueType.INTEGER, ValueType.DOUBLE):
                converted.append(slot)
                self._set_types(slots[row : row + 1], types[row : row + 1], time_ms[row : row + 1])
            elif (held, new) == (ValueType.DOUBLE, ValueType.INTEGER) and time < self._double_from[slot]:
                as_double[row] = True
            elif held != new:
                keep[row] = False
        if converted:  # rows of this run that came before the change
            mine = np.isin(slots, converted) & (types == ValueType.INTEGER)
            as_double |= mine & keep
        return TypeResolution(keep, as_double, np.array(converted, np.int64))
