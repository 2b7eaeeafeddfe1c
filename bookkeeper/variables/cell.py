"""Cells: each holds one variable, and is the handle that an application uses.

The fast path, adding without a lock, is correct on CPython 3.11 to 3.13 with a GIL. There threads switch, and signal
handlers and finalizers run, only at calls and backward jumps; between load and store of `value` there is neither. So
the addend must be a plain int or float before the load. Other interpreters use the registry's lock: 3.10 also switches
at other instructions and loses adds on a busy machine; newer ones are untested.
tests/bookkeeper/test_interpreters.py checks every interpreter that it finds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from bookkeeper.variables.canonical import Key
from bookkeeper.variables.validation import VariableRefused

INTEGER, DOUBLE, BOOLEAN, STRING = 0, 1, 2, 3
TYPE_NAMES = ("INTEGER", "DOUBLE", "BOOLEAN", "STRING")
VALUE_FIELDS = ("integer", "dbl", "truth", "str")
"""Field of each type in `Value` of bookkeeper.thrift."""
PACK_FORMATS = ("q", "d", "q", "q")
"""Format of the packed cell of each type, for `struct`; a STRING is packed as an index."""
UNKNOWN, COUNTER, GAUGE = 0, 1, 2
INT_MAX = (1 << 63) - 1
INT_MIN = -(1 << 63)
FLOAT_MAX = sys.float_info.max


def _lock_free() -> bool:
    gil = getattr(sys, "_is_gil_enabled", None)
    tried = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
    return tried and (gil is None or bool(gil()))


LOCK_FREE = _lock_free()

Value = TypeVar("Value", int, float, bool, str)


class CellOwner(Protocol):
    """Registry that a cell belongs to. It handles the writes that the fast path of a cell cannot."""

    def remove(self, cell: AnyCell) -> None: ...

    def add_integer(self, cell: Integer, offset: int) -> int: ...

    def set_integer(self, cell: Integer, value: int) -> None: ...

    def add_double(self, cell: Double, offset: float) -> float: ...

    def set_double(self, cell: Double, value: float) -> None: ...

    def set_boolean(self, cell: Boolean, value: bool) -> None: ...

    def set_string(self, cell: String, value: str) -> None: ...


class Cell(Generic[Value]):
    """One variable of a process. Keep the handle and call it: that is the fastest way to count.

    Invariants: `value` is None while the variable does not exist (never written, removed, refused, or after a fork in
    the child). It changes between None and a value only under the registry's lock. `kind` is UNKNOWN exactly while
    `value` is None. `labels` never changes. `key` is their sorted form: name and value in turn."""

    __slots__ = ("__weakref__", "_variables", "key", "kind", "labels", "name", "refused", "routes", "value")
    type = INTEGER
    writable = True
    """False if the value is derived from a histogram."""

    def __init__(
        self, variables: CellOwner, name: str, labels: Mapping[str, str], key: Key, refused: VariableRefused | None
    ) -> None:
        self._variables, self.name, self.key, self.refused = variables, name, key, refused
        self.labels: dict[str, str] = dict(labels)  # without empty values
        self.value: Value | None = None
        self.kind = UNKNOWN
        self.routes: tuple[tuple[str, ...], ...] = ()  # its keys in the look-up cache

    @property
    def described(self) -> str:
        """Type for messages."""
        return TYPE_NAMES[self.type]

    @property
    def family(self) -> str:
        """Name that `describe` applies to: that of the histogram for its parts, else the variable's own."""
        return self.name

    def get(self) -> Value | None:
        """Current value; None if the variable does not exist."""
        return self.value

    def remove(self) -> None:
        """Ends the variable; a later write restarts it."""
        self._variables.remove(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.labels} = {self.value!r}>"


AnyCell = Cell[Any]


class Integer(Cell[int]):
    """Variable of type INTEGER: an int64. Sums saturate at the ends of its range, and such calls are counted."""

    __slots__ = ()

    def add(self, offset: int = 1) -> int:
        """Adds and returns the new value (0 if the write was refused)."""
        if type(offset) is int:
            try:
                if offset >= 0:
                    value = self.value + offset  # type: ignore[operator]
                    if value <= 9223372036854775807:
                        self.value = value
                        return value
                elif self.kind == GAUGE:
                    value = self.value + offset  # type: ignore[operator]
                    if value >= -9223372036854775808:
                        self.value = value
                        return value
            except TypeError:  # value is None
                pass
        return self._variables.add_integer(self, offset)

    def set(self, value: int) -> None:
        """Sets the value. This makes the variable a gauge unless `describe` set another kind."""
        # `self.value` is checked last: no call may come between this check and the store.
        if (
            type(value) is int
            and self.kind == GAUGE
            and -9223372036854775808 <= value <= 9223372036854775807
            and self.value is not None
        ):
            self.value = value
            return
        self._variables.set_integer(self, value)


class Double(Cell[float]):
    """Variable of type DOUBLE: a float64. NaN and infinities may be set, not added."""

    __slots__ = ()
    type = DOUBLE

    def add(self, offset: float = 1.0) -> float:
        """Adds and returns the new value (0.0 if the write was refused)."""
        if type(offset) is float and (0.0 <= offset <= FLOAT_MAX or (self.kind == GAUGE and -FLOAT_MAX <= offset < 0)):
            try:
                value = self.value + offset  # type: ignore[operator]
                self.value = value
                return value
            except TypeError:  # value is None
                pass
        return self._variables.add_double(self, offset)

    def set(self, value: float) -> None:
        """Sets the value. This makes the variable a gauge unless `describe` set another kind."""
        if type(value) is float and self.kind == GAUGE and self.value is not None:
            self.value = value
            return
        self._variables.set_double(self, value)


class Boolean(Cell[bool]):
    """Variable of type BOOLEAN."""

    __slots__ = ()
    type = BOOLEAN

    def set(self, value: bool) -> None:
        """Sets the value."""
        self._variables.set_boolean(self, value)


class String(Cell[str]):
    """Variable of type STRING: at most 32 KiB of UTF-8."""

    __slots__ = ()
    type = STRING

    def set(self, value: str) -> None:
        """Sets the value."""
        self._variables.set_string(self, value)


class LockedInteger(Integer):
    """Integer without the fast path: for interpreters on which it is unsafe, and for names that expire."""

    __slots__ = ()

    def add(self, offset: int = 1) -> int:
        return self._variables.add_integer(self, offset)

    def set(self, value: int) -> None:
        self._variables.set_integer(self, value)


class LockedDouble(Double):
    """Double without the fast path: for interpreters on which it is unsafe, and for names that expire."""

    __slots__ = ()

    def add(self, offset: float = 1.0) -> float:
        return self._variables.add_double(self, offset)

    def set(self, value: float) -> None:
        self._variables.set_double(self, value)


INTEGER_CELL: type[Integer] = Integer if LOCK_FREE else LockedInteger
DOUBLE_CELL: type[Double] = Double if LOCK_FREE else LockedDouble
