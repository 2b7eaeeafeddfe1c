"""The variables of one process: find the cell, add, return the new value.

The short ways (cells.py and the module functions) serve a variable that exists and a plain addend. All else comes here:
the first write, other types of numbers, negative addends, the ends of the range, and everything that is refused.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeVar, cast

from bookkeeper.cells import (
    BOOLEAN,
    COUNTER,
    DOUBLE,
    DOUBLE_CELL,
    GAUGE,
    INT_MAX,
    INT_MIN,
    INTEGER,
    INTEGER_CELL,
    STRING,
    UNKNOWN,
    Boolean,
    Cell,
    Double,
    Integer,
    String,
)
from bookkeeper.labels import LabelError, validate_labels, validate_name

Key = tuple[str, tuple[tuple[str, str], ...]]
Route = dict[str, dict[tuple[str, ...], Any]]
AnyCell = Cell[Any]
Result = TypeVar("Result")

MAX_VARIABLES = 100_000
MAX_DESCRIPTIONS = 10_000
STRING_BYTES = 32 * 1024
HELP_BYTES = 1024
ROUTES_PER_CELL = 8
REFUSED = "bookkeeper.refused"
LOG_EVERY_S = 60.0
KINDS = {"": UNKNOWN, "counter": COUNTER, "gauge": GAUGE}
CELLS: dict[int, type[AnyCell]] = {INTEGER: INTEGER_CELL, DOUBLE: DOUBLE_CELL, BOOLEAN: Boolean, STRING: String}
TYPE_NAMES = ("INTEGER", "DOUBLE", "BOOLEAN", "STRING")

log = logging.getLogger("bookkeeper")


class VariableRefused(ValueError):
    """A call that was not carried out: counted as `bookkeeper.refused{reason=…}`, raised only in strict mode.

    `reason` is one of name, labels, type, value, saturated, limit, describe, settings."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return self.text


class Variables:
    """All cells of a process, found by name and labels.

    Locks: `lock` guards `_cells`, `_descriptions`, `version`, and the steps of a cell from and to None. No I/O, no
    logging and no code of the application runs under it. Re-entrant, for signal handlers and `__del__`.
    `integers` … `strings` are caches name -> label values -> cell, read without the lock; a reader compares the labels,
    because two sets of labels may have the same values."""

    def __init__(self, *, strict: bool = False, max_variables: int = MAX_VARIABLES) -> None:
        self.strict, self.max_variables = strict, max_variables
        self.lock = threading.RLock()
        self.version = 0  # changes whenever a variable comes, goes, or changes its type, kind or description
        self.integers: Route = {}
        self.doubles: Route = {}
        self.booleans: Route = {}
        self.strings: Route = {}
        self._routes = (self.integers, self.doubles, self.booleans, self.strings)
        self._cells: dict[Key, AnyCell] = {}
        self._descriptions: dict[str, tuple[str, str, int]] = {}
        self._logged: dict[str, float] = {}
        self.in_use = False
        self.on_first_use: Callable[[], None] = lambda: None

    # Finding cells.

    def integer(self, name: str, labels: Mapping[str, str] | None = None) -> Integer:
        """The cell of an INTEGER variable, which begins to exist when it is first written."""
        return cast(Integer, self._find(INTEGER, name, labels))

    def double(self, name: str, labels: Mapping[str, str] | None = None) -> Double:
        """The cell of a DOUBLE variable, which begins to exist when it is first written."""
        return cast(Double, self._find(DOUBLE, name, labels))

    def boolean(self, name: str, labels: Mapping[str, str] | None = None) -> Boolean:
        """The cell of a BOOLEAN variable, which begins to exist when it is first written."""
        return cast(Boolean, self._find(BOOLEAN, name, labels))

    def string(self, name: str, labels: Mapping[str, str] | None = None) -> String:
        """The cell of a STRING variable, which begins to exist when it is first written."""
        return cast(String, self._find(STRING, name, labels))

    def existing(self, type_: int, name: str, labels: Mapping[str, str] | None) -> AnyCell | None:
        """The cell of a variable that exists and has that type, else None."""
        try:
            cell = self._cells.get(_key(name, labels or {}))
        except (TypeError, AttributeError, ValueError):
            return None
        return cell if cell is not None and cell.type == type_ else None

    def _find(self, type_: int, name: str, labels: Mapping[str, str] | None) -> AnyCell:
        given = {} if labels is None else labels
        try:
            cell = self._routes[type_][name][tuple(given.values())]
            if cell.labels == given:
                return cast(AnyCell, cell)
        except (KeyError, TypeError, AttributeError):
            pass
        return self._find_slowly(type_, name, given)

    def _find_slowly(self, type_: int, name: str, given: Mapping[str, str]) -> AnyCell:
        try:
            given = _checked(name, given)
        except VariableRefused as error:
            return CELLS[type_](self, str(name)[:80], {}, ("", ()), error)
        key = _key(name, given)
        with self.lock:
            cell = self._cells.get(key)
            if cell is None or (cell.type != type_ and cell.value is None):
                cell = CELLS[type_](self, name, dict(key[1]), key, None)
                if len(self._cells) >= self.max_variables:
                    return cell  # refused when it is written, unless there is room by then
                self._cells[key] = cell
            elif cell.type != type_:  # becomes the variable's cell if the first write may change the type
                return CELLS[type_](self, name, dict(key[1]), key, None)
            self._route(cell, given)
        return cell

    def _route(self, cell: AnyCell, given: Mapping[str, str]) -> None:
        values = tuple(given.values())
        if len(values) == len(cell.labels) and len(cell.routes) < ROUTES_PER_CELL and values not in cell.routes:
            self._routes[cell.type].setdefault(cell.name, {})[values] = cell
            cell.routes += (values,)

    def _unroute(self, cell: AnyCell) -> None:
        by_values = self._routes[cell.type].get(cell.name, {})
        for values in cell.routes:
            if by_values.get(values) is cell:
                del by_values[values]
        if not by_values:
            self._routes[cell.type].pop(cell.name, None)
        cell.routes = ()

    # Writing.

    def add_integer(self, cell: Integer, offset: int) -> int:
        """What `cell.add` does when the short way does not apply."""
        return self._write(lambda: self._add_integer(cell, _whole(offset)), 0)

    def set_integer(self, cell: Integer, value: int) -> None:
        """What `cell.set` does when the short way does not apply."""
        self._write(lambda: self._set_integer(cell, _whole(value)), None)

    def add_double(self, cell: Double, offset: float) -> float:
        """What `cell.add` does when the short way does not apply."""
        return self._write(lambda: self._add_double(cell, _finite(_real(offset))), 0.0)

    def set_double(self, cell: Double, value: float) -> None:
        """What `cell.set` does when the short way does not apply."""
        self._write(lambda: self._set(cell, _real(value)), None)

    def set_boolean(self, cell: Boolean, value: bool) -> None:
        """Sets a BOOLEAN."""
        self._write(lambda: self._set(cell, _truth(value)), None)

    def set_string(self, cell: String, value: str) -> None:
        """Sets a STRING."""
        self._write(lambda: self._set(cell, _text(value, STRING_BYTES, "value")), None)

    def _write(self, action: Callable[[], Result], otherwise: Result) -> Result:
        try:
            result = action()
        except VariableRefused as error:
            self.refuse(error)
            return otherwise
        if not self.in_use:
            self.in_use = True
            self.on_first_use()
        return result

    def _add_integer(self, cell: Integer, offset: int) -> int:
        with self.lock:
            cell = cast(Integer, self._attach(cell))
            self._note_kind(cell, COUNTER if offset >= 0 and cell.kind != GAUGE else GAUGE)
            if cell.value is None:
                cell.value = 0
            value = cell.value + offset
            if value > INT_MAX:
                value = INT_MAX
            if value < INT_MIN:
                value = INT_MIN
            before, cell.value = cell.value, value
        if value - before != offset and value in (INT_MAX, INT_MIN):
            self.refuse(_saturated(cell), whole=False)
        return value

    def _set_integer(self, cell: Integer, value: int) -> None:
        within = min(max(value, INT_MIN), INT_MAX)
        self._set(cell, within)
        if within != value:
            self.refuse(_saturated(cell), whole=False)

    def _add_double(self, cell: Double, offset: float) -> float:
        with self.lock:
            cell = cast(Double, self._attach(cell))
            self._note_kind(cell, COUNTER if offset >= 0.0 and cell.kind != GAUGE else GAUGE)
            if cell.value is None:
                cell.value = 0.0
            value = cell.value + offset
            cell.value = value
        return value

    def _set(self, cell: AnyCell, value: Any) -> None:
        with self.lock:
            cell = self._attach(cell)
            self._note_kind(cell, GAUGE)
            cell.value = value

    def _note_kind(self, cell: AnyCell, inferred: int) -> None:
        kind = self._descriptions.get(cell.name, ("", "", UNKNOWN))[2] or inferred
        if kind != cell.kind or cell.value is None:
            cell.kind = kind
            self.version += 1

    def _attach(self, cell: AnyCell) -> AnyCell:
        """The cell that holds the variable for a write through `cell`; VariableRefused if it may not be written."""
        if cell.refused is not None:
            raise cell.refused
        current = self._cells.get(cell.key)
        if current is cell:
            return cell
        if current is not None and current.type == cell.type:
            return current
        if current is None or current.value is None:
            return self._install(cell)
        if current.type == INTEGER and cell.type == DOUBLE:
            return self._widen(cast(Integer, current), cast(Double, cell))
        raise VariableRefused(
            "type",
            f"{cell.name} {cell.labels} is {TYPE_NAMES[current.type]}, not {TYPE_NAMES[cell.type]}: "
            "use one type for a variable, or another name",
        )

    def _install(self, cell: AnyCell) -> AnyCell:
        if cell.key not in self._cells and len(self._cells) >= self.max_variables and cell.name != REFUSED:
            raise VariableRefused(
                "limit", f"{cell.name}: this process has {self.max_variables} variables, use fewer label values"
            )
        self._cells[cell.key] = cell
        self._route(cell, cell.labels)
        return cell

    def _widen(self, integer: Integer, double: Double) -> Double:
        """The one change of type that is allowed. No add is lost: later ones find None and come to the lock."""
        value = integer.value
        integer.value = None
        double.value, double.kind = float(cast(int, value)), integer.kind
        integer.kind = UNKNOWN
        self._unroute(integer)
        self._cells[double.key] = double
        self._route(double, double.labels)
        self.version += 1
        return double

    def remove(self, cell: AnyCell) -> None:
        """Ends the variable of a cell, if it exists and has the cell's type."""
        with self.lock:
            current = self._cells.get(cell.key)
            if current is None or current.type != cell.type:
                return
            del self._cells[cell.key]
            self._unroute(current)
            current.value, current.kind = None, UNKNOWN
            self.version += 1

    # Telling.

    def describe(self, name: str, help: str = "", unit: str = "", kind: str = "") -> None:
        """Tells what a variable means: `kind` is "counter" or "gauge"; each part that is left out is forgotten."""
        try:
            self._describe(name, help, unit, kind)
        except VariableRefused as error:
            self.refuse(error)

    def _describe(self, name: str, help: str, unit: str, kind: str) -> None:
        _checked(name, {})
        if kind not in KINDS:
            raise VariableRefused("describe", f"{name}: kind {kind!r:.40}: give 'counter' or 'gauge'")
        entry = (_text(help, HELP_BYTES, "help"), _text(unit, HELP_BYTES, "unit"), KINDS[kind])
        with self.lock:
            if name not in self._descriptions and len(self._descriptions) >= MAX_DESCRIPTIONS:
                raise VariableRefused("limit", f"{name}: {MAX_DESCRIPTIONS} names are described already")
            self._descriptions[name] = entry
            for cell in self._cells.values():
                if cell.name == name and cell.value is not None and entry[2]:
                    cell.kind = entry[2]
            self.version += 1

    def refuse(self, error: VariableRefused, *, whole: bool = True) -> None:
        """Counts a refusal, logs it at most once a minute for each reason, and in strict mode raises it.

        `whole` is False if the call had an effect all the same."""
        with self.lock:
            try:
                counter = self._find_slowly(INTEGER, REFUSED, {"reason": error.reason})
                self._add_integer(cast(Integer, counter), 1)
            except VariableRefused:  # the program uses the name for something else
                pass
            now = monotonic()
            loud = now - self._logged.get(error.reason, -LOG_EVERY_S) >= LOG_EVERY_S
            if loud:
                self._logged[error.reason] = now
        if self.strict:
            raise error
        if loud:
            log.warning("%s (%s; further ones are only counted)", error, "refused" if whole else "changed")

    def refusals(self) -> dict[str, int]:
        """How many calls were refused, by reason."""
        with self.lock:
            cells = [cell for cell in self._cells.values() if cell.name == REFUSED and cell.type == INTEGER]
            return {cell.labels.get("reason", ""): cell.value or 0 for cell in cells}

    # For snapshots and forks.

    def listed(self) -> tuple[int, list[AnyCell], dict[str, tuple[str, str, int]]]:
        """The version, the cells that have a value, and all descriptions, taken at one moment."""
        with self.lock:
            cells = [cell for cell in self._cells.values() if cell.value is not None]
            return self.version, cells, dict(self._descriptions)

    def forget_values(self) -> None:
        """In a forked child: no variable exists any more, the cells that the program holds stay usable."""
        self.lock = threading.RLock()
        for cell in self._cells.values():
            cell.value, cell.kind = None, UNKNOWN
        self._logged.clear()
        self.version += 1
        self.in_use = False


def _key(name: str, labels: Mapping[str, str]) -> Key:
    return name, tuple(sorted((label, value) for label, value in labels.items() if value))


def _checked(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """A copy of the labels, validated: the caller may change its own mapping afterwards."""
    try:
        validate_name(name)
    except LabelError as error:
        raise VariableRefused("name", str(error)) from None
    try:
        copied = dict(labels)
        validate_labels(copied)
    except (LabelError, TypeError, ValueError) as error:
        raise VariableRefused("labels", f"{name}: {error}") from None
    return copied


def _whole(value: object) -> int:
    """A plain int of anything that is an integer (bool, NumPy's integers); floats are refused."""
    try:
        return int(operator.index(value))  # type: ignore[arg-type]
    except Exception:
        raise VariableRefused("value", f"{value!r:.80} is no integer: use a double variable, or round it") from None


def _real(value: object) -> float:
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError(value)
        return float(value)  # type: ignore[arg-type]
    except Exception:
        raise VariableRefused("value", f"{value!r:.80} is no number: give a float") from None


def _finite(value: float) -> float:
    if value - value != 0.0:
        raise VariableRefused("value", f"adding {value} would spoil the sum for ever: set it, or leave it out")
    return value


def _truth(value: object) -> bool:
    # NumPy's bool_ is accepted by its name: this package does not import NumPy.
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise VariableRefused("value", f"{value!r:.80} is no boolean: give True or False")


def _text(value: object, limit: int, what: str) -> str:
    if not isinstance(value, str):
        raise VariableRefused("value", f"{what} {value!r:.80} is a {type(value).__name__}: give a str")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise VariableRefused("value", f"{what} {value!r:.80} does not fit UTF-8: remove lone surrogates") from None
    if size > limit:
        raise VariableRefused("value", f"{what} {value!r:.80} has {size} bytes: use at most {limit}")
    return str(value)


def _saturated(cell: AnyCell) -> VariableRefused:
    return VariableRefused("saturated", f"{cell.name} {cell.labels} left the range of int64 and stays at its end")
