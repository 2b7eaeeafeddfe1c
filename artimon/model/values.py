"""Types and kinds of variables. The numbers are part of every format and must never change."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType

Value = int | float | bool | str

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class ValueType(IntEnum):
    """Type of a variable. ENDED is not a type but marks a row as the end of its series."""

    INTEGER = 0
    DOUBLE = 1
    BOOLEAN = 2
    STRING = 3
    ENDED = 255


class CellContent(Enum):
    """Contents of the 64 bits of a cell: an int64, the bits of a float64, 0 or 1, or the index of a string."""

    INT64 = "int64"
    FLOAT64 = "float64"
    FLAG = "flag"
    TEXT = "text"


CONTENTS: Mapping[ValueType, CellContent] = MappingProxyType(
    {
        ValueType.INTEGER: CellContent.INT64,
        ValueType.DOUBLE: CellContent.FLOAT64,
        ValueType.BOOLEAN: CellContent.FLAG,
        ValueType.STRING: CellContent.TEXT,
    }
)
COLUMNS: Mapping[ValueType, str] = MappingProxyType(
    {
        ValueType.INTEGER: "integer",
        ValueType.DOUBLE: "double",
        ValueType.BOOLEAN: "boolean",
        ValueType.STRING: "string",
    }
)
"""Column of each type in batches, in the raw table and in answers, in the order of the columns."""
WHOLE_TYPES = tuple(int(one) for one, content in CONTENTS.items() if content in (CellContent.INT64, CellContent.FLAG))
"""Numbers of the types whose cells are exact integers."""


class Kind(IntEnum):
    """Kind of a number: a counter only grows after its start time, a gauge may rise and fall."""

    UNKNOWN = 0
    COUNTER = 1
    GAUGE = 2


def type_of(value: Value) -> ValueType:
    """Return the type that stores a Python value; bool is tested first because it is a subclass of int."""
    if isinstance(value, bool):
        return ValueType.BOOLEAN
    if isinstance(value, int):
        return ValueType.INTEGER
    if isinstance(value, float):
        return ValueType.DOUBLE
    return ValueType.STRING


def double_to_cell(value: float) -> int:
    """Return the 64 bits of a double as an int64."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def cell_to_double(cell: int) -> float:
    """Inverse of `double_to_cell`."""
    return float(struct.unpack("<d", struct.pack("<q", cell))[0])


def value_of_cell(type_: ValueType, cell: int, strings: tuple[str, ...]) -> Value:
    """Return the Python value of a cell."""
    match CONTENTS[type_]:
        case CellContent.FLOAT64:
            return cell_to_double(cell)
        case CellContent.FLAG:
            return bool(cell)
        case CellContent.TEXT:
            return strings[cell]
    return cell


STALE_BITS = 0x7FF0000000000002
"""Cell of the NaN by which Prometheus marks the end of a series."""
STALE = cell_to_double(STALE_BITS)


def can_convert(old: ValueType, new: ValueType) -> bool:
    """True if a series of type `old` may continue with type `new`: the same, or INTEGER -> DOUBLE (never back)."""
    return old == new or (old == ValueType.INTEGER and new == ValueType.DOUBLE)
