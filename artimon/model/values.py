"""The four types of a variable and its kind; numbers are part of every format, never change one."""

from __future__ import annotations

import struct
from enum import IntEnum

Value = int | float | bool | str

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class ValueType(IntEnum):
    """Type of a variable. ENDED is not a type: it marks a row that says that its series ended."""

    INTEGER = 0
    DOUBLE = 1
    BOOLEAN = 2
    STRING = 3
    ENDED = 255


class Kind(IntEnum):
    """What a number means: a counter only grows within one birth, a gauge goes anywhere."""

    UNKNOWN = 0
    COUNTER = 1
    GAUGE = 2


def type_of(value: Value) -> ValueType:
    """The type that a Python value is stored as; bool is tested first because it is an int to Python."""
    if isinstance(value, bool):
        return ValueType.BOOLEAN
    if isinstance(value, int):
        return ValueType.INTEGER
    if isinstance(value, float):
        return ValueType.DOUBLE
    return ValueType.STRING


def double_to_cell(value: float) -> int:
    """The 64 bits of a double, read as an int64."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def cell_to_double(cell: int) -> float:
    """Inverse of `double_to_cell`."""
    return float(struct.unpack("<d", struct.pack("<q", cell))[0])


def may_become(old: ValueType, new: ValueType) -> bool:
    """Whether a series of type `old` may go on with type `new`: the same, or INTEGER -> DOUBLE (once: there is no way
    back)."""
    return old == new or (old == ValueType.INTEGER and new == ValueType.DOUBLE)
