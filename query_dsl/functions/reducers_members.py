"""Reducers that place each member in its class: rank, share, running sum, standard score. Members keep their keys."""

from __future__ import annotations

import numpy as np

from artimon.compute.partials import partial_of, result_of
from artimon.model.values import INT64_MIN
from query_dsl.functions.filters_kernels import order_keys
from query_dsl.functions.reducers_base import GIVEN, ClassMembers, Reduced, Reducer
from query_dsl.functions.reducers_stats import DDOF, sd
from query_dsl.functions.registry import Args, Argument
from query_dsl.results.result_cells import INTEGER, Cells, Example, Floats, Ints, as_floats, doubles, of_type


def share(members: ClassMembers, _args: Args) -> Reduced:
    with np.errstate(all="ignore"):
        return _members(members, doubles(members.floats / _of_class(members, "sum"), members.column.present))


def standardize(members: ClassMembers, args: Args) -> Reduced:
    spread = sd(members, args).column
    with np.errstate(all="ignore"):
        scores = (members.floats - _of_class(members, "mean")) / members.every(as_floats(spread.types, spread.cells))
    return _members(members, doubles(scores, members.column.present & members.every(spread.present)))


def rank(members: ClassMembers, args: Args) -> Reduced:
    """1 + the number of members before it; NaN comes after all numbers."""
    keys, number = _order(members, args["ascending"])
    out = np.zeros(keys.shape, np.int64)
    for _, rows in members.blocks():
        order = np.argsort(~keys[rows], axis=1, kind="stable")
        ordered = np.take_along_axis(keys[rows], order, axis=1)
        places = np.broadcast_to(np.arange(rows.shape[1])[:, None], ordered.shape[1:])
        again = np.zeros(ordered.shape, np.bool_)
        again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        firsts = np.maximum.accumulate(np.where(again, 0, places), axis=1)
        ranks = np.zeros(ordered.shape, np.int64)
        np.put_along_axis(ranks, order, firsts + 1, axis=1)
        numbers = number[rows].sum(axis=1, keepdims=True)
        out[rows] = np.where(number[rows], ranks, numbers + 1)
    return _members(members, of_type(INTEGER, out, members.column.present))


def running_sum(members: ClassMembers, args: Args) -> Reduced:
    """Sum of a member and those before it, the greatest first; ties in canonical order."""
    keys, _ = _order(members, args["ascending"])
    values = np.where(members.column.present, members.floats, 0.0)
    out = np.zeros(values.shape)
    with np.errstate(all="ignore"):
        for _, rows in members.blocks():
            order = np.argsort(~keys[rows], axis=1, kind="stable")
            sums = np.cumsum(np.take_along_axis(values[rows], order, axis=1), axis=1)
            block = np.zeros(sums.shape)
            np.put_along_axis(block, order, sums, axis=1)
            out[rows] = block
        if args["share"]:
            out /= _of_class(members, "sum")
    return _members(members, doubles(out, members.column.present))


def _order(members: ClassMembers, ascending: bool) -> tuple[Ints, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Return sort keys, the first member with the greatest, and a mask of numbers; other members have the least key."""
    keys, number = order_keys(members.column)
    return np.where(number, ~keys if ascending else keys, INT64_MIN), number


def _of_class(members: ClassMembers, statistic: str) -> Floats:
    """Return a statistic of its class for each member."""
    return members.every(as_floats(*result_of(partial_of(statistic, members.column, members.starts))[:2]))


def _members(members: ClassMembers, column: Cells) -> Reduced:
    return Reduced(column, (), members.keys, members.codes)


_ASCENDING = Argument("ascending", "flag", "the smallest first", False)
ENTRIES = (
    Reducer(
        name="share",
        summary="Each member divided by the sum of its class (DOUBLE), with name and labels.",
        example='fetch(\'requests\').rate("5m").share(by=["dc"])',
        case=Example(GIVEN, (0.2, None, 1.0)),
        run=share,
        one_per_class=False,
        unit="none",
    ),
    Reducer(
        name="standardize",
        summary="Standard score of each member in its class, (value - mean) / sd (DOUBLE), with name and labels; NaN "
        "where all are equal, missing where no more than ddof have a value.",
        example="fetch('load').standardize(by=[\"rack\"])",
        case=Example(GIVEN, (-1.0, None, float("nan"))),
        case_args="ddof=0",
        run=standardize,
        one_per_class=False,
        arguments=(DDOF,),
        unit="standard deviations",
    ),
    Reducer(
        name="rank",
        summary="Place of each member in its class (INTEGER), with name and labels: 1 for the greatest. Equal ones "
        "share a place; NaN comes after every number.",
        example="fetch('load').rank(by=[\"rack\"])",
        case=Example(GIVEN, (2.0, None, 1.0)),
        run=rank,
        one_per_class=False,
        arguments=(_ASCENDING,),
        unit="place",
    ),
    Reducer(
        name="running_sum",
        summary="Sum of each member and the greater ones of its class (DOUBLE), with name and labels; with share=True "
        "divided by the sum of the class, for a Pareto chart. Equal ones go by name and labels.",
        example="fetch('disk.used').running_sum(share=True, by=[])",
        case=Example(GIVEN, (1.0, None, 1.0)),
        case_args="share=True",
        run=running_sum,
        one_per_class=False,
        arguments=(Argument("share", "flag", "divide by the sum of the class", False), _ASCENDING),
    ),
)
