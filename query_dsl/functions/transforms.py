"""Transforms of time and order, and the table of all transforms.

`sort` sets a non-canonical order; `limit` and later steps that leave the keys unchanged keep it. A step that makes new
keys (a reducer, an operator, relabel and similar ones) restores the canonical order.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from artimon.model.grid import Grid
from query_dsl.functions import transforms_downsample as display
from query_dsl.functions import transforms_labels, transforms_windows
from query_dsl.functions import transforms_samples as sampled
from query_dsl.functions.filters_kernels import rank_rows
from query_dsl.functions.registry import Args, Argument
from query_dsl.functions.step import Evaluation, S, Step, StepCall
from query_dsl.functions.transforms_samples import clip_samples, integrate_samples, limited, shift_samples
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import DOUBLE, Cells, Example, Floats, Ints, as_floats, canonical_order, doubles
from query_dsl.tree.entry_table import read_only_table
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration


def _shift(asked: StepCall) -> Matrix:
    """Evaluate the child earlier; the same as offset."""
    ms, grid = asked.args["d"], asked.grid
    if ms % grid.step_ms:
        raise QueryError(
            f"shift by {format_duration(ms)} is not a multiple of the step {format_duration(grid.step_ms)}: "
            f"use {format_duration(-(-ms // grid.step_ms) * grid.step_ms)}"
        )
    found = asked.child(Grid(grid.end_ms - ms, grid.step_ms, grid.n))
    return Matrix(found.keys, grid, found.column, found.strings)


class _Clip(Step):
    def check(self, args: Args) -> None:
        start, end = args["start"], args["end"]
        if start.relative == end.relative and start.ms >= end.ms:
            raise QueryError(f"clip: the start {start} is not before the end {end}")


def _clip(asked: StepCall) -> Matrix:
    now_ms = asked.context.now_ms
    start, end = (asked.args[name].resolve(now_ms) for name in ("start", "end"))
    found, ends = asked.child(), asked.grid.ends()
    inside = (ends > start) & (ends <= end)
    return Matrix(
        found.keys, asked.grid, Cells(found.types, found.cells, found.present & inside[None, :]), found.strings
    )


def _exact(asked: StepCall) -> Matrix:
    return _refuse_rounded(asked.child(), asked.context)


def _exact_samples(found: RawSeries, _args: Args, context: Evaluation) -> RawSeries:
    return _refuse_rounded(found, context)


def _refuse_rounded(found: S, context: Evaluation) -> S:
    """Return the series. Raises QueryError if one is DOUBLE, or if a function below is approximate."""
    rounded = np.flatnonzero(found.types == DOUBLE)
    if len(rounded):
        raise QueryError(f"exact: {len(rounded)} series are DOUBLE, such as {found.series[int(rounded[0])]}")
    if context.approximate:
        raise QueryError(f"exact: the values of {context.approximate} are approximate: buckets hold several samples")
    return found


def _resample(asked: StepCall) -> Matrix:
    step, grid = format_duration(asked.args["step"]), format_duration(asked.grid.step_ms)
    raise QueryError(
        f"mixed grids: resample by {step} in a grid of {grid}; resample is for raw samples, as in "
        f'samples(\'x\').transform("resample", "{step}"): on a grid say .bucketize("last", "{step}")'
    )


def _sort(asked: StepCall) -> Matrix:
    found, rank, descending = asked.child(), asked.args["rank"], asked.args["descending"]
    by_name = canonical_order(found.keys)
    if rank == "name":
        return found.take(by_name[::-1] if descending else by_name)
    found = found.take(by_name)
    return found.take(rank_rows(found.column, rank, descending))


def integral(
    values: Floats, present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], times: Ints, initial: float
) -> Floats:
    """Return (series, columns) integrals by left rectangles: `initial` plus, for each earlier point, value x seconds to
    the next point, summed from the oldest."""
    order = np.argsort(~present, axis=1, kind="stable")  # moves the present points of each series to the front
    packed = np.take_along_axis(np.where(present, values, 0.0), order, axis=1)
    apart = np.diff(np.where(np.take_along_axis(present, order, axis=1), times[order], 0), axis=1)
    counts = present.sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        areas = np.where(np.arange(1, present.shape[1]) < counts, packed[:, :-1] * apart / 1000.0, 0.0)
        sums = np.cumsum(np.concatenate((np.full((len(values), 1), float(initial)), areas), axis=1), axis=1)
    out = np.zeros(values.shape, np.float64)
    np.put_along_axis(out, order, sums, axis=1)
    return out


def _integrate(asked: StepCall) -> Matrix:
    if asked.grid.n == 1:
        raise QueryError(
            "integrate adds up the buckets of a range, but the query has only one bucket: use "
            '.range("1h").integrate(), or '
            '.map("mean", "1h") times 3600 for the integral over the last hour'
        )
    found = asked.context.numeric_only(asked.child(), "integrate")
    values = as_floats(found.types, np.ascontiguousarray(found.cells))
    sums = integral(values, found.present, found.grid.ends(), asked.args["initial"])
    return Matrix(found.keys, asked.grid, doubles(sums, found.present))


_ROW = (1.0, None, 5.0)
_STEP = Argument("step", "duration", "width of the buckets")

TRANSFORMS: Mapping[str, Step] = read_only_table(
    Step(
        name="shift",
        summary="Values moved d later: with 1w those of a week ago. On a grid a multiple of the step (as .offset); "
        "raw samples move by any d. Of any type.",
        example='fetch(\'temperature\').transform("shift", "1w")',
        case=Example((_ROW,), (None, 1.0, None)),
        case_args='"1m"',
        arguments=(Argument("d", "duration", "time to move by"),),
        family="transform",
        run=_shift,
        on_samples=shift_samples,
    ),
    _Clip(
        name="clip",
        summary="Values in (start, end]; others become missing. A bucket counts by its end. Of any type.",
        example='fetch(\'temperature\').transform("clip", "now-8m", "now-4m")',
        case=Example((_ROW,), (1.0, None, None)),
        case_args="0, 60000",
        arguments=(
            Argument("start", "instant", "start of the range, exclusive"),
            Argument("end", "instant", "end of the range, inclusive"),
        ),
        family="transform",
        run=_clip,
        on_samples=clip_samples,
    ),
    Step(
        name="resample",
        summary='Raw samples on a grid, the newest of each bucket: the same as .bucketize("last", step). Of any type.',
        example='samples(\'temperature\').transform("resample", "1m")',
        case=Example((_ROW,), _ROW),
        arguments=(_STEP,),
        family="transform",
        run=_resample,
    ),
    Step(
        name="sort",
        summary="Series in the order of a value in the range, or of their names. NaN behind the numbers, then STRING "
        "and series without a value; ties in canonical order. A later step that makes new labels sorts again.",
        example='fetch(\'temperature\').transform("sort", rank="max", descending=True).limit(3)',
        case=Example(((1.0, None, 5.0), (2.0, 3.0, None)), (2.0, 3.0, None)),
        arguments=(
            Argument("rank", "choice", "sort key", "last", choices=("last", "mean", "max", "min", "first", "name")),
            Argument("descending", "flag", "greatest first", False),
        ),
        family="transform",
        run=_sort,
    ),
    Step(
        name="limit",
        summary="The first n series in the order they have; says how many there were. Of any type.",
        example="fetch('temperature').transform(\"limit\", 10)",
        case=Example(((1.0, None, 5.0), (2.0, 3.0, None)), (1.0, None, 5.0)),
        case_args="1",
        arguments=(Argument("n", "integer", "number of series", least=1, unit="series"),),
        family="transform",
        run=lambda asked: limited(asked.child(), asked.args, asked.context),
        on_samples=limited,
    ),
    Step(
        name="integrate",
        summary="Running sum of value x seconds to the next point (left rectangle), over the points that are there "
        "(DOUBLE); STRING is left out.",
        example="fetch('temperature').transform(\"integrate\")",
        case=Example((_ROW,), (10.0, None, 130.0)),
        case_args="10",
        arguments=(Argument("initial", "number", "value at the first point", 0, unit="that of the result"),),
        family="transform",
        run=_integrate,
        on_samples=integrate_samples,
        unit="of the series, times seconds",
    ),
    Step(
        name="exact",
        summary="The same series, or an error if one is DOUBLE (as integers beyond 64 bits are) or approximate.",
        example="fetch('http.requests').increase('1h').exact()",
        case=Example(((1, None, 3),), (1, None, 3)),
        family="transform",
        run=_exact,
        on_samples=_exact_samples,
    ),
    *transforms_labels.ENTRIES,
    *transforms_windows.ENTRIES,
    *display.ENTRIES,
    *sampled.ENTRIES,
)
