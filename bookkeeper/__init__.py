"""Counts things in an application and serves them to Artimon.

    import bookkeeper
    bookkeeper.add_to_integer_var("http.requests", {"route": "/"}, 1)

Nothing else is needed: the first write starts a background thread that makes the process pollable and registers it with
ZooKeeper (ARTIMON_ZOOKEEPER, default 127.0.0.1:2181). No call waits for the network, and none raises: what cannot be
carried out is counted in the variable `bookkeeper.refused`. On a hot path keep a handle:

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
from bookkeeper.variables.histograms import DEFAULT_BOUNDS
from bookkeeper.variables.timers import InFlight, Timer
from bookkeeper.variables.validation import VariableRefused

if TYPE_CHECKING:
    from bookkeeper.variables.snapshot import Entry

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
    """Makes `book` the object that all functions of this module go to, and returns the one before: for tests."""
    global _book
    before, _book = _book, book
    return before


def default() -> Bookkeeper:
    """The object that the functions of this module go to."""
    return _book


def add_to_integer_var(name: str, labels: Mapping[str, str], offset: int = 1) -> int:
    """Adds to an INTEGER variable, which begins at 0, and returns its new value.

    Sums beyond int64 stop at its end. A refused call returns 0 and is counted."""
    if LOCK_FREE:  # the same short way as Integer.add, see cells.py: no call between load and store of the value
        try:
            cell = _book.integers[name][(*labels.values(),)]
            if cell.labels == labels and type(offset) is int and offset > 0:
                value: int = cell.value + offset
                if value <= 9223372036854775807:
                    cell.value = value
                    return value
        except Exception:  # no such variable yet, or labels that raise
            pass
    return _book.add_to_integer_var(name, labels, offset)


def set_integer_var(name: str, labels: Mapping[str, str], value: int) -> None:
    """Sets an INTEGER variable."""
    _book.integer(name, labels).set(value)


def get_integer_var(name: str, labels: Mapping[str, str]) -> int | None:
    """The value of an INTEGER variable, None if there is none of that name and labels."""
    return _book.get_integer_var(name, labels)


def remove_integer_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends an INTEGER variable if it exists."""
    _book.remove_integer_var(name, labels)


def add_to_double_var(name: str, labels: Mapping[str, str], offset: float = 1.0) -> float:
    """Adds to a DOUBLE variable, which begins at 0.0, and returns its new value.

    NaN and infinities are refused, as they would spoil the sum. A refused call returns 0.0 and is counted. An INTEGER
    variable of the same name and labels becomes a DOUBLE, for good."""
    if LOCK_FREE:
        try:
            cell = _book.doubles[name][(*labels.values(),)]
            if cell.labels == labels and type(offset) is float and 0.0 <= offset <= 1.7976931348623157e308:
                value: float = cell.value + offset
                cell.value = value
                return value
        except Exception:  # no such variable yet, or labels that raise
            pass
    return _book.add_to_double_var(name, labels, offset)


def set_double_var(name: str, labels: Mapping[str, str], value: float) -> None:
    """Sets a DOUBLE variable; NaN and infinities are allowed."""
    _book.double(name, labels).set(value)


def get_double_var(name: str, labels: Mapping[str, str]) -> float | None:
    """The value of a DOUBLE variable, None if there is none of that name and labels."""
    return _book.get_double_var(name, labels)


def remove_double_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends a DOUBLE variable if it exists."""
    _book.remove_double_var(name, labels)


def set_boolean_var(name: str, labels: Mapping[str, str], value: bool) -> None:
    """Sets a BOOLEAN variable."""
    _book.boolean(name, labels).set(value)


def get_boolean_var(name: str, labels: Mapping[str, str]) -> bool | None:
    """The value of a BOOLEAN variable, None if there is none of that name and labels."""
    return _book.get_boolean_var(name, labels)


def remove_boolean_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends a BOOLEAN variable if it exists."""
    _book.remove_boolean_var(name, labels)


def set_string_var(name: str, labels: Mapping[str, str], value: str) -> None:
    """Sets a STRING variable: at most 32 KiB of UTF-8."""
    _book.string(name, labels).set(value)


def get_string_var(name: str, labels: Mapping[str, str]) -> str | None:
    """The value of a STRING variable, None if there is none of that name and labels."""
    return _book.get_string_var(name, labels)


def remove_string_var(name: str, labels: Mapping[str, str]) -> None:
    """Ends a STRING variable if it exists."""
    _book.remove_string_var(name, labels)


def integer(name: str, labels: Mapping[str, str] | None = None) -> Integer:
    """A handle to an INTEGER variable, which begins to exist with its first `add` or `set`."""
    return _book.integer(name, labels)


def double(name: str, labels: Mapping[str, str] | None = None) -> Double:
    """A handle to a DOUBLE variable, which begins to exist with its first `add` or `set`."""
    return _book.double(name, labels)


def boolean(name: str, labels: Mapping[str, str] | None = None) -> Boolean:
    """A handle to a BOOLEAN variable, which begins to exist with its first `set`."""
    return _book.boolean(name, labels)


def string(name: str, labels: Mapping[str, str] | None = None) -> String:
    """A handle to a STRING variable, which begins to exist with its first `set`."""
    return _book.string(name, labels)


def histogram(name: str, labels: Mapping[str, str] | None = None, bounds: Iterable[float] | None = None) -> Histogram:
    """A handle to a histogram: `observe(value)`. It begins to exist with its first value, as the variables
    `NAME.bucket{le="…"}`, `NAME.sum` and `NAME.count`. `bounds` None: those that the name has, else DEFAULT_BOUNDS."""
    return _book.histogram(name, labels, bounds)


def timer(name: str, labels: Mapping[str, str] | None = None, bounds: Iterable[float] | None = None) -> Timer:
    """A timer that observes seconds in a histogram: `with timer:`, `async with timer:`, `@timer`."""
    return _book.timer(name, labels, bounds)


def in_flight(name: str, labels: Mapping[str, str] | None = None) -> InFlight:
    """An INTEGER gauge of how many are under way: `with in_flight:`, `async with in_flight:`, `@in_flight`."""
    return _book.in_flight(name, labels)


def callback(
    name: str,
    labels: Mapping[str, str] | None,
    function: Callable[[], Any],
    type: int | str = "double",
    kind: str = "gauge",
    deadline_s: float = DEADLINE_S,
) -> Callback:
    """A variable whose value `function` tells at each poll, None for no value. Called in a thread of its own; what it
    raises, and that it takes longer than `deadline_s`, is counted in `bookkeeper.callback.errors`. `type`: "integer",
    "double", "boolean" or "string"."""
    return _book.callback(name, labels, function, type, kind, deadline_s)


def on_poll(function: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Callback:
    """`function` is called before each poll, as `callback`, and sets whatever variables it likes."""
    return _book.on_poll(function, deadline_s)


def expire(name: str, after_s: float | None) -> None:
    """Series of that name end when nothing was written to them for `after_s` seconds and a poll has shown their last
    value; the next write begins them anew. None: never (the default)."""
    _book.expire(name, after_s)


def collect(*, ends: bool = False) -> list[Entry]:
    """All variables of this moment, by name and labels; callbacks are called before. `ends`: series that expired end,
    because who calls this is the one that collects."""
    return _book.collect(ends=ends)


def strict(on: bool = True) -> None:
    """Raise VariableRefused instead of counting what is refused: for an application's tests (also ARTIMON_STRICT=1)."""
    _book.strict(on)


def describe(name: str, help: str = "", unit: str = "", kind: str = "") -> None:
    """Tells what all variables of a name mean; `kind` is "counter" or "gauge", inferred where it is left out."""
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
    """Settings by hand instead of by the environment; best before the first write, else the process registers anew."""
    _book.configure(
        context=context,
        instance=instance,
        zookeeper=zookeeper,
        advertise=advertise,
        bind=bind,
        openmetrics=openmetrics,
        strict=strict,
    )


def leave() -> None:
    """Hands over the last values without waiting for a poll, as a file for the agent of the host (docs/bookkeeper.md).

    Call it before os._exit, exec, or in a handler of a signal that ends the process. Nothing is shown afterwards."""
    _book.leave()


def write_dropin(name: str | None = None, folder: str | None = None) -> int:
    """Writes the variables of this process into a drop-in file, for the agent of the host; how many there were.

    For a program that cannot be polled, once before it ends; `bookkeeper.dropin.Writer` can do more. DropinError if the
    file cannot be written."""
    from bookkeeper.export.dropin_file import DropinWriter  # not at the top: most programs never need it

    return DropinWriter(name, folder, book=_book).write()


def refusals() -> dict[str, int]:
    """How many calls were refused, by reason; the same figures are variables named `bookkeeper.refused`."""
    return _book.refusals()
