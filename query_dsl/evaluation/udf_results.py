"""Results of user-defined functions, checked and written into cells; texts for the errors of those that fail."""

from __future__ import annotations

import linecache
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from query_dsl.results.result_cells import BOOLEAN, DOUBLE, INTEGER, STRING, Bools, Cells, of_type
from query_dsl.tree.query_errors import QueryError

RESULT_TYPES: Mapping[str, int] = {"DOUBLE": DOUBLE, "INTEGER": INTEGER, "BOOLEAN": BOOLEAN, "STRING": STRING}
MAX_TEXT = 65_536
_MAX_SHOWN = 300


class BadResult(ValueError):
    """A result that is not accepted. The text names it and says what to return instead."""


def _kind_of(value: object) -> str:
    return f"{_short(value)} ({type(value).__name__})"


def _short(value: object, limit: int = 60) -> str:
    try:
        text = repr(value)
    except Exception:  # a class of the user may raise anything
        text = f"something of type {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def to_python_value(value: Any) -> Any:
    """Convert to a Python value; None for a missing one (masked, NA, NaT)."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic | np.ndarray):
        if value.shape != ():
            raise BadResult(f"returned an array of shape {value.shape} for a window: return one value, or None")
        return value.item()
    return value


def _double(value: Any) -> float:
    if not isinstance(value, numbers.Real):
        hint = ', or say gives="STRING"' if isinstance(value, str) else ""
        raise BadResult(f"returned {_kind_of(value)}: return a number or None{hint}")
    try:
        return float(value)
    except OverflowError:
        raise BadResult(f"returned {_short(value)}, which does not fit into DOUBLE") from None


def _integer(value: Any) -> int:
    whole = (
        int(value) if isinstance(value, numbers.Integral) or (isinstance(value, float) and value.is_integer()) else None
    )
    if whole is None:
        raise BadResult(f'returned {_kind_of(value)}, but gives="INTEGER": return a whole number or None')
    if not -(2**63) <= whole < 2**63:
        raise BadResult(f"returned {_short(whole)}, which is not a 64-bit integer")
    return whole


def _boolean(value: Any) -> int:
    if not isinstance(value, bool):
        raise BadResult(f'returned {_kind_of(value)}, but gives="BOOLEAN": return True, False or None')
    return int(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise BadResult(f'returned {_kind_of(value)}, but gives="STRING": return a text or None')
    if len(value) > MAX_TEXT:
        raise BadResult(f"returned a text of {len(value)} characters: at most {MAX_TEXT}")
    return value


_NUMBER: Mapping[str, Callable[[Any], float | int]] = {"DOUBLE": _double, "INTEGER": _integer, "BOOLEAN": _boolean}
_KINDS: Mapping[str, str] = {"DOUBLE": "biuf", "INTEGER": "biu", "BOOLEAN": "b", "STRING": ""}


class ResultWriter:
    """Cells that are filled one by one or row by row; the others are missing."""

    def __init__(self, gives: str, shape: tuple[int, int]) -> None:
        """Make missing cells. Raises QueryError unless `gives` is one of GIVES."""
        if gives not in RESULT_TYPES:
            raise QueryError(f"gives={gives!r:.80}: a user-defined function returns one of {', '.join(RESULT_TYPES)}")
        self._gives = gives
        self._read = _NUMBER.get(gives)
        self._values = np.zeros(shape, np.float64 if gives == "DOUBLE" else np.int64)
        self._present = np.zeros(shape, np.bool_)
        self._codes: dict[str, int] = {}

    @property
    def strings(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def cells(self) -> Cells:
        return of_type(RESULT_TYPES[self._gives], self._values.view(np.int64), self._present)

    def mask(self, row: int, present: Bools) -> None:
        """Keep only these values of a row."""
        self._present[row] &= present

    def write(self, row: int, column: int, value: Any) -> None:
        """Store one value as the function returned it. Raises BadResult."""
        found = value if type(value) is float else to_python_value(value)
        if found is not None:
            self._values[row, column] = self._code(found) if self._read is None else self._read(found)
            self._present[row, column] = True

    def _code(self, value: Any) -> int:
        return self._codes.setdefault(_string(value), len(self._codes))

    def write_row(self, row: int, found: Any) -> None:
        """Store a row as the function returned it: an array, masked or not, or a list with None. Raises BadResult."""
        n = self._values.shape[1]
        if isinstance(found, tuple | list) and any(value is None for value in found):
            found = np.array(found, object)
        try:
            array: npt.NDArray[Any] = np.ma.asanyarray(found)
        except Exception as problem:  # ragged lists, objects with an unusual __array__
            raise BadResult(f"returned {_kind_of(found)}: return an array of {n} values ({problem})") from None
        if array.shape != (n,):
            what = f"an array of shape {array.shape}" if array.shape else _kind_of(found)
            raise BadResult(f"returned {what}: return an array of {n} values, one for each time")
        present = ~np.ma.getmaskarray(array)
        data = np.ma.getdata(array)
        if data.dtype.kind in _KINDS[self._gives] and (data.dtype.kind != "u" or self._gives == "DOUBLE"):
            self._values[row], self._present[row] = data, present
            return
        for column in np.flatnonzero(present).tolist():
            self.write(row, column, data[column])


def function_text(call: Callable[..., Any]) -> str:
    """Describe a function as `name (line 3 of rules.py)`."""
    inner = getattr(call, "func", call)  # functools.partial
    name = getattr(inner, "__name__", None) or type(inner).__name__
    code = getattr(inner, "__code__", None)
    return f"{name!r}{_file_of(code.co_filename, code.co_firstlineno, True) if code is not None else ''}"


def failing_line(error: BaseException, call: Callable[..., Any], ours: Path) -> str:
    """Describe the exception and the line of the function's file that raised it (else the innermost line of all);
    `ours` is the file that calls the function."""
    code = getattr(getattr(call, "func", call), "__code__", None)
    frames: list[tuple[str, int]] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    first = max((i + 1 for i, frame in enumerate(frames) if frame[0] == str(ours)), default=0)
    own = [frame for frame in frames[first:] if code is not None and frame[0] == code.co_filename]
    if not frames[first:]:
        return _short_text(error)
    file, line = (own or frames[first:])[-1]
    source = linecache.getline(file, line).strip()
    shown = f": {source:.120}" if source else ""
    return f"{_short_text(error)}\n  line {line}{_file_of(file, line, False)}{shown}"


def _short_text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    text = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _file_of(file: str, line: int, with_line: bool) -> str:
    """Name the file if it exists; the cell of a notebook has none."""
    known = Path(file).is_file()
    if not with_line:
        return f" of {Path(file).name}" if known else ""
    return f" (line {line} of {Path(file).name})" if known else f" (line {line} of its cell)"
