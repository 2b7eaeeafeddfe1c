"""The functions of `bookkeeper` as methods of one object, without any network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bookkeeper.variables.callbacks import DEADLINE_S, Callback, Callbacks
from bookkeeper.variables.canonical import VALUE_BYTES, short_repr
from bookkeeper.variables.cell import BOOLEAN, DOUBLE, INTEGER, STRING, TYPE_NAMES
from bookkeeper.variables.histogram import Histogram
from bookkeeper.variables.histogram_table import HistogramTable
from bookkeeper.variables.timers import InFlight, Timer
from bookkeeper.variables.validation import VariableRefused, to_int, to_word
from bookkeeper.variables.variable_registry import VariableRegistry

if TYPE_CHECKING:
    from bookkeeper.variables.snapshot import SnapshotReader, VariableEntry

Labels = Mapping[str, str]


class ProcessVariables(VariableRegistry):
    """Variables, histograms, timers and callbacks of one process, without any network."""

    def __init__(
        self, *, strict: bool | None = None, max_variables: int | None = None, max_per_name: int | None = None
    ) -> None:
        super().__init__(strict=strict, max_variables=max_variables, max_per_name=max_per_name)
        self._histograms, self._callbacks = HistogramTable(self), Callbacks(self)
        self._reader: SnapshotReader | None = None
        self.before_reads = (self._callbacks.update, self._histograms.update)

    def forget_values(self) -> None:
        """In a forked child: ends all variables; handles stay usable."""
        super().forget_values()
        self._reader = None
        self._histograms.forget()
        self._callbacks.forget()

    def go_offline(self) -> bool:
        """Disable listening on the network. False if the process listens already."""
        return True

    def add_to_integer_var(self, name: str, labels: Labels, offset: int = 1) -> int:
        """Adds, and returns the new value (0 if refused)."""
        return self.integer(name, labels).add(offset)

    def set_integer_var(self, name: str, labels: Labels, value: int) -> None:
        """Sets the value."""
        self.integer(name, labels).set(value)

    def get_integer_var(self, name: str, labels: Labels) -> int | None:
        """Value of the INTEGER variable; None if it does not exist."""
        cell = self.find_existing(INTEGER, name, labels)
        return None if cell is None else cell.get()

    def remove_integer_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(INTEGER, name, labels)

    def add_to_double_var(self, name: str, labels: Labels, offset: float = 1.0) -> float:
        """Adds, and returns the new value (0.0 if refused)."""
        return self.double(name, labels).add(offset)

    def set_double_var(self, name: str, labels: Labels, value: float) -> None:
        """Sets the value."""
        self.double(name, labels).set(value)

    def get_double_var(self, name: str, labels: Labels) -> float | None:
        """Value of the DOUBLE variable; None if it does not exist."""
        cell = self.find_existing(DOUBLE, name, labels)
        return None if cell is None else cell.get()

    def remove_double_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(DOUBLE, name, labels)

    def set_boolean_var(self, name: str, labels: Labels, value: bool) -> None:
        """Sets the value."""
        self.boolean(name, labels).set(value)

    def get_boolean_var(self, name: str, labels: Labels) -> bool | None:
        """Value of the BOOLEAN variable; None if it does not exist."""
        cell = self.find_existing(BOOLEAN, name, labels)
        return None if cell is None else cell.value

    def remove_boolean_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(BOOLEAN, name, labels)

    def set_string_var(self, name: str, labels: Labels, value: str) -> None:
        """Sets the value."""
        self.string(name, labels).set(value)

    def get_string_var(self, name: str, labels: Labels) -> str | None:
        """Value of the STRING variable; None if it does not exist."""
        cell = self.find_existing(STRING, name, labels)
        return None if cell is None else cell.value

    def remove_string_var(self, name: str, labels: Labels) -> None:
        """Ends the variable if it exists."""
        self._remove(STRING, name, labels)

    def _remove(self, type_: int, name: str, labels: Labels) -> None:
        cell = self.find_existing(type_, name, labels)
        if cell is not None:
            self.remove(cell)

    # Histograms, timers, callbacks.

    def histogram(self, name: str, labels: Labels | None = None, bounds: Iterable[float] | None = None) -> Histogram:
        """Handle of a histogram; the first `observe` creates it."""
        return self._histograms.handle(name, labels, bounds)

    def timer(self, name: str, labels: Labels | None = None, bounds: Iterable[float] | None = None) -> Timer:
        """Timer that observes seconds in a histogram: `with`, `async with` or a decorator."""
        return Timer(self._histograms.handle(name, labels, bounds))

    def in_flight(self, name: str, labels: Labels | None = None) -> InFlight:
        """INTEGER gauge of operations in progress: `with`, `async with` or a decorator."""
        return InFlight(self.integer(name, labels))

    def callback(
        self,
        name: str,
        labels: Labels | None,
        function: Callable[[], Any],
        type: int | str = "double",
        kind: str = "gauge",
        deadline_s: float = DEADLINE_S,
    ) -> Callback:
        """Variable whose value `function` returns at each poll."""
        try:
            code = _type_of(type)
        except VariableRefused as error:
            self.refuse(error)
            code = DOUBLE
        return self._callbacks.add(name, function, deadline_s, self._find(code, name, labels), kind)

    def on_poll(self, function: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Callback:
        """Calls `function` before each poll; the function may set any variables."""
        return self._callbacks.add(_name_of(function), function, deadline_s)

    def collect(self, *, ends: bool = False) -> list[VariableEntry]:
        """Runs the callbacks and returns all current variables, sorted by name and labels. `ends`: True if the caller
        is the collector; then expired series end."""
        from bookkeeper.variables.snapshot import (
            SnapshotReader,  # imported late: `import bookkeeper` must load only what counting needs
        )

        if ends:
            return SnapshotReader(self).entries()
        self._reader = self._reader or SnapshotReader(self, ends=False)
        return self._reader.entries()


def _type_of(given: object) -> int:
    """Number of a type, given by name or number. Raises VariableRefused."""
    name = to_word(given).upper()
    code = TYPE_NAMES.index(name) if name in TYPE_NAMES else given
    try:
        if 0 <= to_int(code) < len(TYPE_NAMES):
            return to_int(code)
    except VariableRefused:
        pass
    *names, last = (repr(name.lower()) for name in TYPE_NAMES)
    raise VariableRefused("callback", f"type {short_repr(given)}: give {', '.join(names)} or {last}")


def _name_of(function: object) -> str:
    try:
        name = f"{function.__module__}.{function.__qualname__}"  # type: ignore[attr-defined]
    except Exception:  # a callable object lacks a __qualname__, and one of the application may raise anything
        name = type(function).__name__
    return name[: VALUE_BYTES // 4]
