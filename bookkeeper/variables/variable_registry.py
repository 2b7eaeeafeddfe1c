"""Registry of the variables of one process: find the cell, add, return the new value.

The fast paths (cell.py and the module functions) add plain numbers to existing variables. This module handles the rest:
the first write, other types of numbers, the ends of the range, limits, and all refusals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from bookkeeper.runtime.application_log import LOG_PERIOD_S, add_null_handler, warn
from bookkeeper.runtime.series_limits import SERIES, SERIES_PER_NAME
from bookkeeper.variables.allocation import MAX_NAMES, Allocation
from bookkeeper.variables.canonical import short_repr
from bookkeeper.variables.cell import (
    COUNTER,
    DOUBLE,
    GAUGE,
    INT_MAX,
    INT_MIN,
    INTEGER,
    UNKNOWN,
    AnyCell,
    Boolean,
    Double,
    Integer,
    String,
)
from bookkeeper.variables.cell_table import REFUSED
from bookkeeper.variables.validation import (
    STRING_BYTES,
    NamedVariable,
    VariableRefused,
    to_bool,
    to_finite_float,
    to_float,
    to_int,
    to_str,
    to_word,
    validate_key,
    with_variable,
)

Result = TypeVar("Result")

HELP_BYTES = 1024
KINDS = {"": UNKNOWN, "counter": COUNTER, "gauge": GAUGE}


class VariableRegistry(Allocation):
    """Writes, ends and describes the variables of a process. `strict`, `max_variables` and `max_per_name` None: read
    from the environment at the first write."""

    def __init__(
        self, *, strict: bool | None = None, max_variables: int | None = None, max_per_name: int | None = None
    ) -> None:
        super().__init__()
        self._explicit = strict, max_variables, max_per_name
        self.table.limit, self.table.per_name = max_variables or SERIES, max_per_name or SERIES_PER_NAME
        self.is_strict, self.off = bool(strict), False
        self._resolved = self._ready = False
        self._logged_at: dict[str, float] = {}
        self.in_use = False
        self.on_first_use: Callable[[], None] = lambda: None

    def strict(self, on: bool = True) -> None:
        """Raise VariableRefused instead of counting a refusal: for an application's tests."""
        self._explicit = (on, *self._explicit[1:])
        self.is_strict = on

    def resolve(self) -> None:
        """Reads settings that were not given in code from the environment: at the first write, not at import.

        A signal handler that writes meanwhile uses the defaults."""
        if self._resolved:
            return
        self._resolved = True  # no call between the check and this
        with self.lock:  # no fork in the middle of an import: the child would wait for it forever
            from bookkeeper.runtime import process_settings as settings

            found = settings.read_counting_settings()
        strict, limit, per_name = self._explicit
        self.is_strict = found.strict if strict is None else strict
        self.table.limit = found.series if limit is None else limit
        self.table.per_name = found.series_per_name if per_name is None else per_name
        self.off = found.off
        self._ready = True
        add_null_handler()
        for problem in found.problems:
            self.record_refusal(VariableRefused("settings", problem))

    # Writing.

    def add_integer(self, cell: Integer, offset: int) -> int:
        """Slow path of `Integer.add`."""
        return self.write(lambda: self._add_integer(cell, to_int(offset)), 0, cell)

    def set_integer(self, cell: Integer, value: int) -> None:
        """Slow path of `Integer.set`."""
        self.write(lambda: self._set_integer(cell, to_int(value)), None, cell)

    def add_double(self, cell: Double, offset: float) -> float:
        """Slow path of `Double.add`."""
        return self.write(lambda: self._add(cell, to_finite_float(offset), 0.0), 0.0, cell)

    def set_double(self, cell: Double, value: float) -> None:
        """Slow path of `Double.set`."""
        self.write(lambda: self.store(cell, to_float(value)), None, cell)

    def set_boolean(self, cell: Boolean, value: bool) -> None:
        """Sets a BOOLEAN."""
        self.write(lambda: self.store(cell, to_bool(value)), None, cell)

    def set_string(self, cell: String, value: str) -> None:
        """Sets a STRING."""
        self.write(lambda: self.store(cell, to_str(value, STRING_BYTES, "value")), None, cell)

    def write(self, action: Callable[[], Result], otherwise: Result, of: NamedVariable) -> Result:
        """Run `action`, a write of the variable `of`, and return its result; `otherwise` if it was refused or counting
        is off. Raises only in strict mode."""
        if not self._resolved:
            self.resolve()
        if self.off:
            return otherwise
        try:
            result = action()
        except VariableRefused as error:
            self.refuse(with_variable(of, error))
            return otherwise
        except Exception as error:  # out of memory or of stack, or a defect here: must not reach the application
            self.refuse(VariableRefused("internal", f"{type(error).__name__}: {error}"))
            return otherwise
        if self._full_names:
            self.warn()
        if not self.in_use:
            self.mark_used()
        return result

    def start_use(self) -> None:
        """Act like a first write: resolve the settings and start the endpoint."""
        if not self._resolved:
            self.resolve()
        if not self.off:
            self.mark_used()

    def mark_used(self) -> None:
        """Call `on_first_use` once, which starts the endpoint."""
        if not self.in_use and self._ready:  # no call between this and the store: a signal handler may count, too
            self.in_use = True
            try:
                self.on_first_use()
            except Exception as error:  # must not reach the application
                self.record_refusal(VariableRefused("settings", f"no endpoint: {type(error).__name__}: {error}"))

    def _add_integer(self, cell: Integer, offset: int) -> int:
        value = self._add(cell, offset, 0)
        if isinstance(value, float):  # the overflow series has become a DOUBLE
            return int(value)
        within = min(max(int(value), INT_MIN), INT_MAX)
        if within != value:
            self.refuse(_is_saturated(cell), whole=False)
        return within

    def _add(self, cell: AnyCell, offset: Any, zero: Any) -> Any:
        """Add and store the sum, an INTEGER limited to int64; return the sum without this limit."""
        with self.lock:
            cell = self._allocate(cell)
            self._note_kind(cell, COUNTER if offset >= 0 and cell.kind != GAUGE else GAUGE)
            if cell.value is None:
                cell.value = zero
            value = kept = cell.value + offset
            if cell.type == INTEGER:
                if kept > INT_MAX:
                    kept = INT_MAX
                if kept < INT_MIN:
                    kept = INT_MIN
            cell.value = kept
        return value

    def _set_integer(self, cell: Integer, value: int) -> None:
        within = min(max(value, INT_MIN), INT_MAX)
        self.store(cell, within)
        if within != value:
            self.refuse(_is_saturated(cell), whole=False)

    def store(self, cell: AnyCell, value: Any, kind: int = GAUGE) -> None:
        """Sets a value of the cell's type. VariableRefused if the write is not allowed."""
        with self.lock:
            cell = self._allocate(cell)
            self._note_kind(cell, kind)
            cell.value = float(value) if cell.type == DOUBLE else value

    def _note_kind(self, cell: AnyCell, inferred: int) -> None:
        kind = self.descriptions.get(cell.name, ("", "", UNKNOWN))[2] or inferred
        if kind != cell.kind or cell.value is None:
            cell.kind = kind
            self.version += 1
        self.expiry.note_write(cell)

    def expire(self, name: str, after_s: float | None) -> None:
        """Ends series of that name after `after_s` seconds without a write; see bookkeeper/variables/expiry.py."""
        try:
            self._expire(name, after_s)
        except VariableRefused as error:
            self.refuse(error)

    def _expire(self, name: str, after_s: float | None) -> None:
        name, _ = validate_key(name, {})
        seconds = to_finite_float(0.0 if after_s is None else after_s)
        with self.lock:
            if name not in self.expiry.after_s and len(self.expiry.after_s) >= MAX_NAMES:
                raise VariableRefused("limit", f"{name}: {MAX_NAMES} names have an expiry already: remove one")
            self.expiry.watch(name, seconds, self.table.cells_of(name))

    # Descriptions and refusals.

    def describe(self, name: str, help: str = "", unit: str = "", kind: str = "") -> None:
        """Sets help, unit and kind ("counter" or "gauge") of a name; an omitted part is cleared."""
        try:
            self._describe(name, help, unit, kind)
        except VariableRefused as error:
            self.refuse(error)

    def _describe(self, name: str, help: str, unit: str, kind: str) -> None:
        name, _ = validate_key(name, {})
        if to_word(kind) not in KINDS:
            raise VariableRefused("describe", f"{name}: kind {short_repr(kind)}: give 'counter' or 'gauge'")
        entry = (to_str(help, HELP_BYTES, "help"), to_str(unit, HELP_BYTES, "unit"), KINDS[to_word(kind)])
        with self.lock:
            if name not in self.descriptions and len(self.descriptions) >= MAX_NAMES:
                raise VariableRefused("limit", f"{name}: {MAX_NAMES} names are described already, the limit")
            self.descriptions[name] = entry
            for cell in self.table.cells_of(name):
                if cell.value is not None and entry[2]:
                    cell.kind = entry[2]
            self.version += 1

    def refuse(self, error: VariableRefused, *, whole: bool = True) -> None:
        """Counts a refusal, logs it at most once a minute for each reason, and raises it in strict mode.

        `to_int` is False if the call still had an effect."""
        if not self._resolved:
            self.resolve()
        self.record_refusal(error, whole=whole)
        if self.is_strict and not self.off:
            raise error

    def record_refusal(self, error: VariableRefused, *, whole: bool = True) -> None:
        """Like `refuse`, but never raises."""
        if self.off:
            return
        self.count(REFUSED, {"reason": error.reason})
        now = monotonic()
        if now - self._logged_at.get(error.reason, -LOG_PERIOD_S) >= LOG_PERIOD_S:
            self._logged_at[error.reason] = now
            if not self.is_strict:
                warn(f"{error} ({'refused' if whole else 'changed'}; further ones are only counted)")

    def refusals(self) -> dict[str, int]:
        """Number of refused calls by reason."""
        cells = [cell for cell in self.table.cells_of(REFUSED) if cell.type == INTEGER]
        return {cell.labels.get("reason", ""): cell.value or 0 for cell in cells}

    def forget_values(self) -> None:
        """In a forked child: ends all variables; cells that the program holds stay usable."""
        self.lock = threading.RLock()
        for cell in self.table.all_cells():
            cell.value, cell.kind = None, UNKNOWN
        self.table.note_valueless_cell()
        self.expiry.forget()
        self.ended, self.skipped = set(), set()
        self._logged_at.clear()
        self._full_names.clear()
        self.version += 1
        self.in_use = self._resolved = self._ready = False


def _is_saturated(cell: AnyCell) -> VariableRefused:
    return VariableRefused("saturated", f"{cell.name} {cell.labels} exceeds int64 and stays at the end of its range")
