"""Own (user-defined) functions: Python callables over windows, classes and pairs; numpy arrays in, plain values out.

    map     f(times, values, labels) -> value      times int64 ms and values of one window, in the series' own type
    reduce  f(times, values, labels) -> (n,)       values masked (members, n), labels a list, one dict per member
    apply   f(a, b, ...) -> (n,)                   masked (n,) arrays of the paired series

For map and reduce, a function of one argument gets the values only, one of two times and values. Arrays are read-only.
Labels have the name as "__name__". None and masked values are NA, NaN is a value. Results are DOUBLE unless `gives`
says "INTEGER", "BOOLEAN" or "STRING". Errors name the function, the series and the failing line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.arrays import Mapped
from artimon.compute.window_frames import WindowFrame, integer_totals
from artimon.model.grid import Grid
from query_dsl.evaluation.time_limit import CallFailed, call_with_limit
from query_dsl.evaluation.udf_results import BadResult, ResultWriter, failing_line, function_text
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.query_result import typed_values
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import BOOLEAN, INTEGER, STRING, Bools, Cells, Ints, SeriesKey, as_floats, read_only
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.tree.nodes import BoundArguments
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import series_text
from query_dsl.tree.times import format_time

Call = Callable[..., Any]
Masked = np.ma.MaskedArray[Any, Any]


@dataclass(frozen=True, slots=True)
class UdfResult(Mapped):
    """Results of user-defined functions: (rows, n) cells, and the texts of STRING cells."""

    strings: tuple[str, ...] = ()


def result_type_of(args: BoundArguments) -> str:
    """Return the result type of a user-defined function."""
    return str(dict(args).get("gives", "DOUBLE"))


def adapt_signature(call: Call) -> Call:
    """Adapt a function of (values), (times, values) or all three to (times, values, labels). Arguments that have a
    default do not count."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except Exception:  # written in C, or an object with a broken signature
        return call
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return call
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = sum(one.kind in positional and one.default is one.empty for one in parameters)
    if wanted == 1:
        return lambda _times, values, _labels: call(values)
    if wanted == 2:
        return lambda times, values, _labels: call(times, values)
    return call


class _CallPosition:
    """Series and window of the current call, for error messages. Written by one thread, read by another."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.series, self.when = "", ""
        self.ends: Ints | None = None
        self.column = 0
        self.abandoned = False

    def call(self, call: Call, *given: Any) -> Any:
        """Call the function, unless the caller no longer waits: then end the abandoned thread."""
        if self.abandoned:
            raise SystemExit
        return call(*given)

    def __str__(self) -> str:
        when = (
            f" in the window that ends at {format_time(int(self.ends[self.column]))}" if self.ends is not None else ""
        )
        return f"own function {self.function}, {self.series}{when}" if self.series else f"own function {self.function}"


class WindowSpans(NamedTuple):
    """Windows of one series: samples `first` (inclusive) to `after` (exclusive), and the end time of each."""

    first: npt.NDArray[np.intp]
    after: npt.NDArray[np.intp]
    end_ms: Ints


def run_udf_window(
    call: Call,
    data: BucketData,
    frame: WindowFrame,
    gives: str = "DOUBLE",
    watch: QueryBudget | None = None,
    min_count: int = 1,
) -> UdfResult:
    """Call f(times, values, labels) for every window with at least `min_count` values: the newest of each bucket and
    its time. Needs the statistics last, last_time and count. Raises QueryError."""
    present = data.present

    def rows() -> Iterator[_Row]:
        for row, key in enumerate(data.keys):
            columns = np.flatnonzero(present[row])
            first, after = (np.searchsorted(columns, edge + 1) for edge in (frame.starts, frame.ends))
            times, cells = (data.stats[name][row][columns] for name in ("last_time", "last"))
            values = typed_values(int(data.types[row]), cells, data.strings)
            yield _Row(key, (row, 0), times, values, WindowSpans(first, after, frame.end_ms))

    owned = _run_rows(call, rows, gives, (len(data.keys), len(frame.ends)), watch, min_count)
    several = integer_totals((data.stats["count"] > 1).astype(np.int64), frame) > 0
    return replace(owned, approximate=several & owned.column.present)


def run_udf_spans(
    call: Call,
    found: RawSeries,
    windows: Callable[[Ints], WindowSpans],
    columns: int | None,
    gives: str = "DOUBLE",
    watch: QueryBudget | None = None,
    min_count: int = 1,
) -> UdfResult:
    """Call f(times, values, labels) for the windows that `windows` makes of the times of each series: `columns` per
    series, or None for one per sample, with all results in one row, series after series. Raises QueryError."""

    def rows() -> Iterator[_Row]:
        for i, key in enumerate(found.keys):
            times = found.times[found.span(i)]
            place = (0, found.span(i).start) if columns is None else (i, 0)
            yield _Row(key, place, times, found.row(i), windows(times))

    shape = (1, found.samples) if columns is None else (len(found), columns)
    return _run_rows(call, rows, gives, shape, watch, min_count)


class _Row(NamedTuple):
    """One series: position of its first result, its samples, its windows."""

    key: SeriesKey
    place: tuple[int, int]
    times: Ints
    values: npt.NDArray[Any]
    spans: WindowSpans


def _run_rows(
    call: Call,
    rows: Callable[[], Iterator[_Row]],
    gives: str,
    shape: tuple[int, int],
    watch: QueryBudget | None,
    min_count: int,
) -> UdfResult:
    """Call the function for each window of each series, and return its results."""
    asked = adapt_signature(call)

    def fill(place: _CallPosition, out: ResultWriter) -> None:
        for key, (row, column), times, values, spans in rows():
            place.series, place.ends = _text(key), spans.end_ms
            still_times, still_values, labels = read_only(times), read_only(values), _labels(key)
            for i, (a, b) in enumerate(zip(spans.first.tolist(), spans.after.tolist(), strict=True)):
                if b - a >= min_count:
                    place.column = i
                    out.write(row, column + i, place.call(asked, still_times[a:b], still_values[a:b], labels))

    return _with_limit(fill, call, gives, shape, watch)


def run_udf_reduce(
    call: Call,
    grid: Grid,
    members: Sequence[tuple[Sequence[SeriesKey], Cells]],
    gives: str = "DOUBLE",
    watch: QueryBudget | None = None,
    *,
    strings: tuple[str, ...] = (),
    min_count: int = 1,
    full: bool = False,
) -> UdfResult:
    """Call f(times, values, labels) once per class of `members` (keys and cells, in canonical order). Steps with fewer
    than `min_count` values are NA; with `full` also steps at which any member has none. Raises QueryError."""
    asked, times = adapt_signature(call), read_only(grid.ends())

    def fill(place: _CallPosition, out: ResultWriter) -> None:
        for row, (keys, column) in enumerate(members):
            place.series = f"class of {len(keys)} series, the first is {_text(keys[0])}" if keys else "an empty class"
            values = _masked(_to_common_type(column, strings), column.present)
            out.write_row(row, place.call(asked, times, values, [_labels(key) for key in keys]))
            counts = column.present.sum(axis=0)
            out.mask(row, counts >= (max(min_count, len(keys)) if full else min_count))

    return _with_limit(fill, call, gives, (len(members), grid.n), watch)


def run_udf_apply(
    call: Call,
    operands: Sequence[tuple[Cells, tuple[str, ...]]],
    keys: Sequence[SeriesKey],
    gives: str = "DOUBLE",
    watch: QueryBudget | None = None,
) -> UdfResult:
    """Call f(a, b, ...) once per row: `operands` are (cells, texts) with equal rows and columns, `keys` name the rows.
    Raises QueryError."""

    def fill(place: _CallPosition, out: ResultWriter) -> None:
        for row, key in enumerate(keys):
            place.series = _text(key)
            rows = [
                _masked(typed_values(int(column.types[row]), column.cells[row], strings), column.present[row])
                for column, strings in operands
            ]
            out.write_row(row, place.call(call, *rows))

    return _with_limit(fill, call, gives, (len(keys), operands[0][0].cells.shape[1]), watch)


def _with_limit(
    fill: Callable[[_CallPosition, ResultWriter], None],
    call: Call,
    gives: str,
    shape: tuple[int, int],
    watch: QueryBudget | None,
) -> UdfResult:
    """Let `fill` write the results of the function `call`, with a timeout; a failure of the function becomes a
    QueryError that names series and window."""
    place, out = _CallPosition(function_text(call)), ResultWriter(gives, shape)

    def quietly() -> None:
        with np.errstate(all="ignore"):  # as in the language: x/0 is inf or NaN, and no warning
            fill(place, out)

    def out_of_time(seconds: float) -> QueryError:
        return QueryError(f"{place}: timed out after {seconds:.3g} s, the time left for it: raise the limit (seconds)")

    try:
        call_with_limit(quietly, watch or QueryBudget(), out_of_time)
    except CallFailed as failed:
        error = failed.error
        said = str(error) if isinstance(error, BadResult) else failing_line(error, call, Path(__file__))
        raise QueryError(f"{place}: {said}") from (None if isinstance(error, BadResult) else error)
    finally:
        place.abandoned = True
    return UdfResult(out.cells(), strings=out.strings)


def _text(key: SeriesKey) -> str:
    return series_text(key.name, dict(key.labels)) or "{}"


def _labels(key: SeriesKey) -> dict[str, str]:
    return {"__name__": key.name, **dict(key.labels)}


def _masked(data: npt.NDArray[Any], present: Bools) -> Masked:
    """Return a masked copy, so that a function may set its mask without changing the values below."""
    return np.ma.MaskedArray(data.copy(), ~present)


def _to_common_type(column: Cells, strings: tuple[str, ...]) -> npt.NDArray[Any]:
    """Convert members to one type: int64 if all are INTEGER, bool if all are BOOLEAN, objects if one is a STRING, else
    float64."""
    kinds = set(column.types.tolist())
    if kinds == {INTEGER} or kinds == {BOOLEAN}:
        return typed_values(kinds.pop(), column.cells, ())
    if STRING not in kinds:
        return as_floats(column.types, np.ascontiguousarray(column.cells))
    rows: Iterator[Any] = (
        typed_values(int(kind), cells, strings) for kind, cells in zip(column.types, column.cells, strict=True)
    )
    out = np.empty(column.cells.shape, object)
    for row, values in enumerate(rows):
        out[row] = values
    return out
