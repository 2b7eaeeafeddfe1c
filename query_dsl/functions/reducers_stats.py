"""Reducers: order statistics, variance, first and last, range."""

from __future__ import annotations

import numpy as np

from artimon.compute import ranks
from artimon.compute.partials import partial_of, result_of
from artimon.compute.quantiles import METHODS
from artimon.compute.ranks import Statistic, apply_statistic
from query_dsl.functions.reducers_base import GIVEN, ClassMembers, Reduced, Reducer
from query_dsl.functions.registry import Args, Argument
from query_dsl.results.result_cells import (
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Example,
    Ints,
    Types,
    as_floats,
    doubles,
)


def quantile(members: ClassMembers, args: Args) -> Reduced:
    """Quantile per class and bucket; NaN if a member is NaN."""
    return _ordered(members, ranks.quantile(args["q"], args["method"]))


def median(members: ClassMembers, _args: Args) -> Reduced:
    return _ordered(members, ranks.MEDIAN)


def mad(members: ClassMembers, _args: Args) -> Reduced:
    """Median absolute deviation, unscaled."""
    return _ordered(members, ranks.DISTANCE)


def _ordered(members: ClassMembers, statistic: Statistic) -> Reduced:
    """Apply `statistic` to ascending values (k, n, size), missing ones last, and their counts (k, n)."""
    counts, out = members.counts, np.zeros(members.counts.shape)
    present, values = members.column.present, members.floats
    with np.errstate(all="ignore"):
        for classes, rows in members.blocks():
            block = np.where(present[rows], values[rows], np.nan).transpose(0, 2, 1)
            out[classes] = apply_statistic(np.ascontiguousarray(block), counts[classes], statistic)
    return Reduced(doubles(out, counts > 0))


def var(members: ClassMembers, args: Args) -> Reduced:
    """Variance in two passes: the mean, then the squared distances from it."""
    column, counts, ddof = members.column, members.counts, args["ddof"]
    mean = as_floats(*result_of(partial_of("mean", column, members.starts))[:2])
    with np.errstate(all="ignore"):
        off = np.where(column.present, members.floats - members.every(mean), 0.0)
        squares = np.add.reduceat(off * off, members.starts, axis=0)
        return Reduced(doubles(squares / (counts - ddof), counts > ddof))


def sd(members: ClassMembers, args: Args) -> Reduced:
    found = var(members, args).column
    return Reduced(doubles(np.sqrt(found.cells.view(np.float64)), found.present))


def first(members: ClassMembers, _args: Args) -> Reduced:
    return _picked(members, *members.first(members.column.present))


def last(members: ClassMembers, _args: Args) -> Reduced:
    rows = np.where(members.column.present, np.arange(len(members.codes), dtype=np.int32)[:, None], np.int32(-1))
    found = np.maximum.reduceat(rows, members.starts, axis=0)
    return _picked(members, np.maximum(found, 0).astype(np.intp), found >= 0)


def _picked(members: ClassMembers, rows: Ints, present: Bools) -> Reduced:
    """Take cells of `rows` (classes, n), in the type of the class: that of its members, DOUBLE if they differ."""
    types, cells, _ = members.column
    kinds = class_types(members)
    mixed = members.every(kinds) != types
    if mixed.any():
        cells = cells.copy()
        cells[mixed] = np.ascontiguousarray(as_floats(types[mixed], cells[mixed])).view(np.int64)
    picked = np.take_along_axis(cells, rows, axis=0)
    strings = members.strings if (kinds == STRING).any() else ()
    return Reduced(Cells(kinds, np.ascontiguousarray(picked), present), strings)


def class_types(members: ClassMembers) -> Types:
    """Return the type of each class (classes,): that of its members, DOUBLE if they differ."""
    types, starts = members.column.types, members.starts
    least, most = np.minimum.reduceat(types, starts), np.maximum.reduceat(types, starts)
    return np.where(least == most, least, DOUBLE).astype(np.uint8)


def value_range(members: ClassMembers, _args: Args) -> Reduced:
    """max - min, INTEGER of INTEGER; a difference that overflows int64 is missing."""
    types, starts = members.column.types, members.starts
    integer = np.logical_and.reduceat(types == INTEGER, starts)
    low, high = (result_of(partial_of(name, members.column, starts)) for name in ("min", "max"))
    with np.errstate(all="ignore"):
        cells = high.cells - low.cells  # wraps to a negative number on overflow
        floats = as_floats(high.types, high.cells) - as_floats(low.types, low.cells)
    present = low.present & (~integer[:, None] | (cells >= 0))
    cells = np.where(integer[:, None], cells, floats.view(np.int64))
    return Reduced(Cells(np.where(integer, INTEGER, DOUBLE).astype(np.uint8), cells, present))


DDOF = Argument("ddof", "integer", "delta degrees of freedom: the divisor is n - ddof", 1, least=0, unit="values")
ENTRIES = (
    Reducer(
        name="quantile",
        summary="Quantile of the members that have a value (DOUBLE), by the methods of numpy; NaN where one is NaN.",
        example="fetch('latency').quantile(0.9, by=[\"dc\"])",
        case=Example(GIVEN, (3.25, None, 2.0)),
        case_args="q=0.75",
        pushed="quantile",
        run=quantile,
        arguments=(
            Argument("q", "number", "the quantile: 0.5 is the median", least=0, most=1, unit="share"),
            Argument(
                "method",
                "choice",
                "interpolation between two values, named as in numpy",
                "linear",
                choices=tuple(METHODS),
            ),
        ),
    ),
    Reducer(
        name="median",
        summary="Median of the members that have a value (DOUBLE): the middle one, or the mean of the two middle ones.",
        example="fetch('latency').median(by=[\"dc\"])",
        case=Example(GIVEN, (2.5, None, 2.0)),
        pushed="median",
        run=median,
    ),
    Reducer(
        name="sd",
        summary="Standard deviation of the members (DOUBLE), two passes; missing where no more than ddof have a value.",
        example="fetch('temperature').sd(by=[\"rack\"])",
        case=Example(GIVEN, (1.5, None, 0.0)),
        case_args="ddof=0",
        run=sd,
        arguments=(DDOF,),
    ),
    Reducer(
        name="var",
        summary="Variance of the members (DOUBLE), two passes; missing where no more than ddof have a value.",
        example="fetch('temperature').var(by=[\"rack\"])",
        case=Example(GIVEN, (4.5, None, None)),
        run=var,
        arguments=(DDOF,),
        unit="of the series, squared",
    ),
    Reducer(
        name="mad",
        summary="Median of the distances of the members to their median (DOUBLE), unscaled.",
        example="fetch('latency').mad(by=[\"dc\"])",
        case=Example(GIVEN, (1.5, None, 0.0)),
        pushed="mad",
        run=mad,
    ),
    Reducer(
        name="first",
        summary="First member by name and labels that has a value; keeps the type, numbers of two types give DOUBLE.",
        example="fetch('build.version').first(by=[\"host\"])",
        case=Example(GIVEN, (1.0, None, 2.0)),
        run=first,
        strings=True,
        one_kind=True,
    ),
    Reducer(
        name="last",
        summary="Last member by name and labels that has a value; keeps the type, numbers of two types give DOUBLE.",
        example="fetch('build.version').last(by=[\"host\"])",
        case=Example(GIVEN, (4.0, None, 2.0)),
        run=last,
        strings=True,
        one_kind=True,
    ),
    Reducer(
        name="range",
        summary="Greatest minus smallest value; exact INTEGER where every member is INTEGER, else DOUBLE.",
        example='fetch(\'temperature\').reduce("range", by=["rack"])',
        case=Example(GIVEN, (3.0, None, 0.0)),
        run=value_range,
    ),
)
