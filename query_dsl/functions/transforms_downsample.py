"""Down-sampling for display: fewer points, same look. Dropped points become missing; the grid stays."""

from __future__ import annotations

import numpy as np

from artimon.compute.checkpoint import checkpoint
from artimon.model.values import INT64_MAX, INT64_MIN
from query_dsl.functions.registry import Argument
from query_dsl.functions.step import Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import DOUBLE, Bools, Cells, Example, Floats, Ints, as_floats

BLOCK_CELLS = 4_000_000
"""Cells per pass; bounds memory independent of the number of series."""


def largest_triangles(values: Floats, present: Bools, times: Ints, n: int) -> Bools:
    """Mask (series, columns) of at most n >= 2 points per series, chosen by Largest-Triangle-Three-Buckets: the first,
    the last, and from each of n - 2 stretches of points the one with the largest triangle, formed with the previously
    kept point and the mean of the next stretch. NaN ranks below every triangle."""
    counts = present.sum(axis=1)
    many = np.flatnonzero(counts > n)
    keep = present.copy()
    block = max(1, BLOCK_CELLS // max(1, present.shape[1]))
    for at in range(0, len(many), block):
        rows = many[at : at + block]
        keep[rows] = _triangles(values[rows], present[rows], times, n)
    return keep


def _triangles(values: Floats, present: Bools, times: Ints, n: int) -> Bools:
    """Do the same for series that all have more than n points."""
    rows = np.arange(len(values))[:, None]
    counts = present.sum(axis=1, keepdims=True)
    at = np.argsort(~present, axis=1, kind="stable")[:, : int(counts.max())]  # columns of the points of each series
    x = (times - times[0]).astype(np.float64)[at]
    y = np.take_along_axis(values, at, axis=1)
    keep = np.zeros(present.shape, np.bool_)
    keep[rows, at[:, :1]] = True
    keep[rows, np.take_along_axis(at, counts - 1, axis=1)] = True
    kept = np.zeros((len(values), 1), np.int64)
    for stretch in range(n - 2):
        checkpoint()
        begin, end = _stretch(stretch, counts, n)
        after, until = _stretch(stretch + 1, counts, n)
        until = np.minimum(until, counts)
        mean_x, mean_y = _mean(x, after, until), _mean(y, after, until)
        width = int((end - begin).max())
        index = begin + np.arange(width)[None, :]
        inside = index < end
        index = np.minimum(index, counts - 1)
        px, py = np.take_along_axis(x, index, axis=1), np.take_along_axis(y, index, axis=1)
        old_x, old_y = np.take_along_axis(x, kept, axis=1), np.take_along_axis(y, kept, axis=1)
        with np.errstate(all="ignore"):
            area = np.abs((old_x - mean_x) * (py - old_y) - (old_x - px) * (mean_y - old_y))
        area = np.where(inside, np.where(np.isnan(area), -1.0, area), -2.0)
        kept = begin + area.argmax(axis=1)[:, None]
        keep[rows, np.take_along_axis(at, kept, axis=1)] = True
    return keep


def _stretch(number: int, counts: Ints, n: int) -> tuple[Ints, Ints]:
    """Return first and end index (series, 1) of a stretch; the stretch after the last holds only the last point."""
    if number >= n - 2:
        return counts - 1, counts
    inner = counts - 2
    return 1 + number * inner // (n - 2), 1 + (number + 1) * inner // (n - 2)


def _mean(values: Floats, begin: Ints, end: Ints) -> Floats:
    width = int((end - begin).max())
    index = begin + np.arange(width)[None, :]
    inside = index < end
    taken = np.take_along_axis(values, np.minimum(index, values.shape[1] - 1), axis=1)
    with np.errstate(all="ignore"):
        return np.asarray(np.where(inside, taken, 0.0).sum(axis=1, keepdims=True) / (end - begin))


def stretch_extremes(column: Cells, n: int) -> Bools:
    """Mask (series, columns) of at most n >= 2 points per series: least and greatest of each of n // 2 equal stretches
    of the grid. Ties take the oldest; NaN counts only if a stretch has no other value."""
    types, cells, present = column
    columns = present.shape[1]
    many = present.sum(axis=1) > n
    keep = present.copy()
    if not many.any():
        return keep
    keep[many] = False
    rows = np.flatnonzero(many)
    edges = -(-np.arange(n // 2 + 1) * columns // (n // 2))  # column c lies in stretch c * (n // 2) // columns
    double = types[rows] == DOUBLE
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if begin == end:
            continue
        for part, real in ((rows[~double], False), (rows[double], True)):
            _mark(keep, cells, present, part, slice(begin, end), real)
    return keep


def _mark(keep: Bools, cells: Ints, present: Bools, rows: Ints, stretch: slice, real: bool) -> None:
    """Mark the least and the greatest value of a stretch."""
    taken, there = np.ascontiguousarray(cells[rows, stretch]), present[rows, stretch]
    some = there.any(axis=1)
    usable = there
    if real:
        values = taken.view(np.float64)
        numbers = there & ~np.isnan(values)
        usable = np.where(numbers.any(axis=1, keepdims=True), numbers, there)
        values = np.where(np.isnan(values), 0.0, values)
        least = np.where(usable, values, np.inf).argmin(axis=1)
        greatest = np.where(usable, values, -np.inf).argmax(axis=1)
    else:
        least = np.where(usable, taken, INT64_MAX).argmin(axis=1)
        greatest = np.where(usable, taken, INT64_MIN).argmax(axis=1)
    for place in (least, greatest):
        # if every usable value equals the filler, argmin may return a missing place
        wrong = some & ~usable[np.arange(len(rows)), place]
        place = np.where(wrong, usable.argmax(axis=1), place)
        keep[rows[some], stretch.start + place[some]] = True


def _lttb(asked: StepCall) -> Matrix:
    found = asked.context.numeric_only(asked.child(), "lttb")
    values = as_floats(found.types, np.ascontiguousarray(found.cells))
    return _masked(found, largest_triangles(values, found.present, found.grid.ends(), asked.args["n"]))


def _minmax(asked: StepCall) -> Matrix:
    found = asked.context.numeric_only(asked.child(), "minmax")
    return _masked(found, stretch_extremes(found.column, asked.args["n"]))


def _masked(found: Matrix, keep: Bools) -> Matrix:
    return Matrix(found.keys, found.grid, Cells(found.types, found.cells, keep), found.strings)


_N = Argument("n", "integer", "maximum number of points per series", least=2, unit="points")

ENTRIES: tuple[Step, ...] = (
    Step(
        name="lttb",
        summary="At most n points of each series, those that keep its shape (Largest Triangle Three Buckets); the "
        "first and the last always; others become missing. Types stay; STRING is left out.",
        example="fetch('temperature').transform(\"lttb\", 50)",
        case=Example(((1.0, 2.0, 9.0, 2.0, 1.0),), (1.0, None, 9.0, None, 1.0)),
        case_args="3",
        arguments=(_N,),
        family="transform",
        run=_lttb,
    ),
    Step(
        name="minmax",
        summary="At most n points of each series: the least and the greatest of each of n // 2 stretches of the range; "
        "others become missing. Types stay; STRING is left out.",
        example="fetch('temperature').transform(\"minmax\", 50)",
        case=Example(((1.0, 2.0, 9.0, 0.0, 1.0),), (None, None, 9.0, 0.0, None)),
        case_args="2",
        arguments=(_N,),
        family="transform",
        run=_minmax,
    ),
)
