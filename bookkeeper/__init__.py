"""Counts things in an application and serves them to Artimon.

    import bookkeeper
    bookkeeper.add_to_integer_var("http.requests", {"route": "/"}, 1)

Nothing else is needed: the first write starts a background thread that makes the process pollable and registers it with
ZooKeeper (ARTIMON_ZOOKEEPER, default 127.0.0.1:2181). No call waits for the network or raises: a refused call is
counted in the variable `bookkeeper.refused`. On a hot path keep a handle:

    requests = bookkeeper.integer("http.requests", {"route": "/"})
    requests.add(1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bookkeeper.process.bookkeeper import Bookkeeper
from bookkeeper.variables.callbacks import DEADLINE_S, Callback
from bookkeeper.variables.canonical import LabelError
from bookkeeper.variables.cell import LOCK_FREE, Boolean, Double, Integer, String
from bookkeeper.variables.histogram import Histogram
from bookkeeper.variables.histogram_table import DEFAULT_BOUNDS
from bookkeeper.variables.timers import InFlight, Timer
from bookkeeper.variables.validation import VariableRefused

if TYPE_CHECKING:
    from bookkeeper.variables.snapshot import VariableEntry

__version__ = "0.1.0"
__all__ = [
    "DEFAULT_BOUNDS",
    "Bookkeeper",
    "Boolean",
    "Callback",
    "Double",
    "Histogram",
    "InFlight",
    "Integer",
    "LabelError",
    "String",
    "Timer",
    "VariableRefused",
    "add_to_double_var",
    "add_to_integer_var",
    "boolean",
    "callback",
    "collect",
    "configure",
    "default",
    "describe",
    "double",
    "expire",
    "get_boolean_var",
    "get_double_var",
    "get_integer_var",
    "get_string_var",
    "histogram",
    "in_flight",
    "integer",
    "leave",
    "on_poll",
    "refusals",
    "remove_boolean_var",
    "remove_double_var",
    "remove_integer_var",
    "remove_string_var",
    "set_boolean_var",
    "set_double_var",
    "set_integer_var",
    "set_string_var",
    "strict",
    "string",
    "timer",
    "use",
    "write_dropin",
]

_book = Bookkeeper()


def use(book: Bookkeeper) -> Bookkeeper:
    """Makes `book` the default object of this module and returns the previous one. For tests."""
    global _book
    before, _book = _book, book
    return before


def default() -> Bookkeeper:
    """Default object, to which the functions of this module forward."""
    return _book


def add_to_integer_var(name: str, labels: Mapping[str, str], offset: int = 1) -> int:
    """Adds to an INTEGER variable, which begins at 0, and returns its new value.

    Sums saturate at the ends of int64. A refused call returns 0 and is counted."""
    if LOCK_FREE:  # fast path as in Integer.add, see variables/cell.py: no call between load and store of the value
        try:
            cell = _book.integers[name][(*labels.values(),)]
            if cell.labels == labels and type(offset) is int and offset > 0:
                value: int = cell.value + offset
                if value <= 9223372036854775807:
                    cell.value = value
                    return value
        except Exception:  # the variable does not exist yet, or its labels raise
            pass
    return _book.add_to_integer_var(name, labels, offset)


def set_integer_var(name: str, labels: Mapping[str, str], value: int) -> None:
    """Sets an INTEGER variable."""
    _book.integer(name, labels).set(value)


def get_integer_var(name: str, labels: Mapping[str, str]) -> int | None:
    """Value of an INTEGER variable; None if it does not exist."""
    return _book.get_integer_var(name, labels)


def remove_integer_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends an INTEGER variable if it exists."""
    _book.remove_integer_var(name, labels)


def add_to_double_var(name: str, labels: Mapping[str, str], offset: float = 1.0) -> float:
    """Adds to a DOUBLE variable, which begins at 0.0, and returns its new value.

    NaN and infinities are refused, because they would ruin the sum. A refused call returns 0.0 and is counted. An
    INTEGER variable of the same name and labels becomes a DOUBLE permanently."""
    if LOCK_FREE:
        try:
            cell = _book.doubles[name][(*labels.values(),)]
            if cell.labels == labels and type(offset) is float and 0.0 <= offset <= 1.7976931348623157e308:
                value: float = cell.value + offset
                cell.value = value
                return value
        except Exception:  # the variable does not exist yet, or its labels raise
            pass
    return _book.add_to_double_var(name, labels, offset)


def set_double_var(name: str, labels: Mapping[str, str], value: float) -> None:
    """Sets a DOUBLE variable; NaN and infinities are allowed."""
    _book.double(name, labels).set(value)


def get_double_var(name: str, labels: Mapping[str, str]) -> float | None:
    """Value of a DOUBLE variable; None if it does not exist."""
    return _book.get_double_var(name, labels)


def remove_double_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends a DOUBLE variable if it exists."""
    _book.remove_double_var(name, labels)


def set_boolean_var(name: str, labels: Mapping[str, str], value: bool) -> None:
    """Sets a BOOLEAN variable."""
    _book.boolean(name, labels).set(value)


def get_boolean_var(name: str, labels: Mapping[str, str]) -> bool | None:
    """Value of a BOOLEAN variable; None if it does not exist."""
    return _book.get_boolean_var(name, labels)


def remove_boolean_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends a BOOLEAN variable if it exists."""
    _book.remove_boolean_var(name, labels)


def set_string_var(name: str, labels: Mapping[str, str], value: str) -> None:
    """Sets a STRING variable: at most 32 KiB of UTF-8."""
    _book.string(name, labels).set(value)


def get_string_var(name: str, labels: Mapping[str, str]) -> str | None:
    """Value of a STRING variable; None if it does not exist."""
    return _book.get_string_var(name, labels)


def remove_string_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends a STRING variable if it exists."""
    _book.remove_string_var(name, labels)


def integer(name: str, labels: Mapping[str, str] | None = None) -> Integer:
    """Handle to an INTEGER variable. The first `add` or `set` creates the variable."""
    return _book.integer(name, labels)


def double(name: str, labels: Mapping[str, str] | None = None) -> Double:
    """Handle to a DOUBLE variable. The first `add` or `set` creates the variable."""
    return _book.double(name, labels)


def boolean(name: str, labels: Mapping[str, str] | None = None) -> Boolean:
    """Handle to a BOOLEAN variable. The first `set` creates the variable."""
    return _book.boolean(name, labels)


def string(name: str, labels: Mapping[str, str] | None = None) -> String:
    """Handle to a STRING variable. The first `set` creates the variable."""
    return _book.string(name, labels)


def histogram(name: str, labels: Mapping[str, str] | None = None, bounds: Iterable[float] | None = None) -> Histogram:
    """Handle to a histogram: `observe(value)`. The first value creates the variables `NAME.bucket{le="…"}`, `NAME.sum`
    and `NAME.count`. `bounds` None: the bounds already used for the name, else DEFAULT_BOUNDS."""
    return _book.histogram(name, labels, bounds)


def timer(name: str, labels: Mapping[str, str] | None = None, bounds: Iterable[float] | None = None) -> Timer:
    """Timer that observes seconds in a histogram: `with timer:`, `async with timer:`, `@timer`."""
    return _book.timer(name, labels, bounds)


def in_flight(name: str, labels: Mapping[str, str] | None = None) -> InFlight:
    """INTEGER gauge of operations in progress: `with in_flight:`, `async with in_flight:`, `@in_flight`."""
    return _book.in_flight(name, labels)


def callback(
    name: str,
    labels: Mapping[str, str] | None,
    function: Callable[[], Any],
    type: int | str = "double",
    kind: str = "gauge",
    deadline_s: float = DEADLINE_S,
) -> Callback:
    """Variable whose value `function` returns at each poll; None means no value. The function runs in a separate
    thread. Exceptions and timeouts (`deadline_s`) are counted in `bookkeeper.callback.errors`. `type`: "integer",
    "double", "boolean" or "string"."""
    return _book.callback(name, labels, function, type, kind, deadline_s)


def on_poll(function: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Callback:
    """Calls `function` before each poll, under the rules of `callback`. The function may set any variables."""
    return _book.on_poll(function, deadline_s)


def expire(name: str, after_s: float | None) -> None:
    """Ends series of that name after `after_s` seconds without a write, once a poll has read their last value. The
    next write restarts a series. None: never (the default)."""
    _book.expire(name, after_s)


def collect(*, ends: bool = False) -> list[VariableEntry]:
    """Runs the callbacks and returns all current variables, sorted by name and labels. `ends`: True if the caller is
    the collector of this process; then expired series end."""
    return _book.collect(ends=ends)


def strict(on: bool = True) -> None:
    """Raise VariableRefused instead of counting refused calls: for an application's tests (also ARTIMON_STRICT=1)."""
    _book.strict(on)


def describe(name: str, help: str = "", unit: str = "", kind: str = "") -> None:
    """Sets help, unit and kind of all variables of a name. `kind`: "counter" or "gauge"; "" infers it from writes."""
    _book.describe(name, help, unit, kind)


def configure(
    *,
    context: str | None = None,
    instance: str | None = None,
    zookeeper: str | None = None,
    advertise: str | None = None,
    bind: str | None = None,
    openmetrics: str | None = None,
    strict: bool | None = None,
) -> None:
    """Changes settings that otherwise come from the environment. After the first write the process registers again."""
    _book.configure(**locals())  # the arguments of this function


def leave() -> None:
    """Writes the last values to a file for the agent of the host, without waiting for a poll (docs/bookkeeper.md).

    Call it before os._exit or exec, or in the handler of a terminating signal. Later writes are not exported."""
    _book.leave()


def write_dropin(name: str | None = None, folder: str | None = None) -> int:
    """Writes the variables of this process to a drop-in file for the agent of the host; returns their number.

    For a program that cannot be polled; call it once at the end. `bookkeeper.dropin.Writer` has more options. Raises
    DropinError if the file cannot be written."""
    from bookkeeper.export.dropin_file import DropinWriter  # imported late: most programs never need it

    return DropinWriter(name, folder, book=_book).write()


def refusals() -> dict[str, int]:
    """Number of refused calls by reason, as in the variables `bookkeeper.refused`."""
    return _book.refusals()
