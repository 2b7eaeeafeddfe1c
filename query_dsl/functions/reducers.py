"""Reducers: many series of one class to one series, bucket by bucket. What they do is in reducers_*.py and, where
a store can do a part of it, in artimon/compute/classes.py; an entry is its documentation and its test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from artimon.compute.quantiles import METHODS
from query_dsl.functions.reducers_base import Members, Reduced, Reducer
from query_dsl.functions.reducers_rank import argmax, argmin, bottomk, topk
from query_dsl.functions.reducers_stats import first, last, mad, median, quantile, sd, value_range, var
from query_dsl.functions.reducers_values import count_values, histogram_quantile
from query_dsl.functions.registry import Argument
from query_dsl.results.cells import Cells, Example
from query_dsl.tree.names import read_only_table

GIVEN = ((1.0, None, 2.0), (4.0, None, None))
RANKS = ("last", "mean", "max", "min", "each")

_DDOF = Argument("ddof", "integer", "what is taken off the number of values to divide by", 1, least=0, unit="values")
_K = Argument("k", "integer", "how many members of each class", least=1, unit="series")
_RANK = Argument(
    "rank",
    "choice",
    "what members are compared by: their newest value in the range, their mean, max or min over it, or at each step",
    "last",
    choices=RANKS,
)
_LABEL = Argument("label", "label", 'the label that is shown; "__name__" for the name')


def _ones(counts: Cells) -> Cells:
    return Cells(counts.types, np.ones_like(counts.cells), counts.present)


_MERGED = (
    Reducer(
        name="mean",
        summary="Mean of the members that have a value (DOUBLE); of BOOLEAN series the share of true.",
        example='fetch(\'temperature\').mean(by=["dc", "rack"])',
        case=Example(GIVEN, (2.5, None, 2.0)),
        pushed="mean",
    ),
    Reducer(
        name="sum",
        summary="Sum of the members that have a value (DOUBLE); with min_count=0 the sum of nothing is 0.",
        example='fetch(\'requests\').rate("5m").sum(by=["dc"])',
        case=Example(GIVEN, (5.0, None, 2.0)),
        pushed="sum",
        total=True,
    ),
    Reducer(
        name="min",
        summary="Smallest value; exact INTEGER where every member is INTEGER or BOOLEAN, else DOUBLE.",
        example="fetch('disk.free').min(by=[\"host\"])",
        case=Example(GIVEN, (1.0, None, 2.0)),
        pushed="min",
    ),
    Reducer(
        name="max",
        summary="Greatest value; exact INTEGER where every member is INTEGER or BOOLEAN, else DOUBLE.",
        example="fetch('queue.length').max(by=[])",
        case=Example(GIVEN, (4.0, None, 2.0)),
        pushed="max",
    ),
    Reducer(
        name="count",
        summary="How many members have a value (INTEGER), of any type; the count of nothing is 0.",
        example="fetch('build.version').count(by=[\"dc\"])",
        case=Example(GIVEN, (2.0, 0.0, 1.0)),
        pushed="count",
        min_count=0,
        total=True,
        strings=True,
        unit="series",
    ),
    Reducer(
        name="group",
        summary="1 (INTEGER) where a member has a value, of any type.",
        example="fetch('build.version').group(by=[\"version\"])",
        case=Example(GIVEN, (1.0, None, 1.0)),
        pushed="count",
        from_partial=_ones,
        strings=True,
        unit="none",
    ),
)

_STATISTICS = (
    Reducer(
        name="quantile",
        summary="Quantile of the members that have a value (DOUBLE), by the methods of numpy; NaN where one is NaN.",
        example="fetch('latency').quantile(0.9, by=[\"dc\"])",
        case=Example(GIVEN, (3.25, None, 2.0)),
        case_args="q=0.75",
        pushed="quantile",
        run=quantile,
        arguments=(
            Argument("q", "number", "which quantile: 0.5 is the median", least=0, most=1, unit="share"),
            Argument(
                "method",
                "choice",
                "how it lies between two values, as numpy calls it",
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
        arguments=(_DDOF,),
    ),
    Reducer(
        name="var",
        summary="Variance of the members (DOUBLE), two passes; missing where no more than ddof have a value.",
        example="fetch('temperature').var(by=[\"rack\"])",
        case=Example(GIVEN, (4.5, None, None)),
        run=var,
        arguments=(_DDOF,),
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
        summary="Greatest less smallest value; exact INTEGER where every member is INTEGER, else DOUBLE.",
        example='fetch(\'temperature\').reduce("range", by=["rack"])',
        case=Example(GIVEN, (3.0, None, 0.0)),
        run=value_range,
    ),
)

_OTHERS = (
    Reducer(
        name="count_values",
        summary="A series for each value that members have, the value as a label, with how many have it (INTEGER), "
        "0 where none has; at most 10000 series.",
        example='fetch(\'build.version\').count_values("version", by=["dc"])',
        case=Example(GIVEN, (1.0, 0.0, 0.0)),
        case_args="label='v'",
        run=count_values,
        arguments=(Argument("label", "label", "the label that gets the value as a text"),),
        min_count=0,
        total=True,
        strings=True,
        unit="series",
    ),
    Reducer(
        name="argmin",
        summary="Label (STRING) of the member with the smallest value, the first of several; NaN only if nothing else.",
        example='fetch(\'disk.free\').argmin("volume", by=["host"])',
        case=Example(GIVEN, (0.0, None, 0.0)),
        case_args="label='i'",
        run=argmin,
        arguments=(_LABEL,),
        carried="label",
        unit="a label",
    ),
    Reducer(
        name="argmax",
        summary="Label (STRING) of the member with the greatest value, the first of several; NaN only if nothing else.",
        example='fetch(\'load\').argmax("host", by=["dc"])',
        case=Example(GIVEN, (1.0, None, 0.0)),
        case_args="label='i'",
        run=argmax,
        arguments=(_LABEL,),
        carried="label",
        unit="a label",
    ),
    Reducer(
        name="topk",
        summary='The k greatest members of each class themselves, with name, labels and type; rank="each" masks all '
        "but the k greatest at each step. NaN is below every number, equal ones go by name and labels.",
        example="fetch('load').topk(5, by=[\"dc\"])",
        case=Example(GIVEN, (4.0, None, None)),
        case_args="k=1",
        pushed="topk",
        run=topk,
        arguments=(_K, _RANK),
    ),
    Reducer(
        name="bottomk",
        summary='The k smallest members of each class themselves, with name, labels and type; rank="each" masks all '
        "but the k smallest at each step. NaN comes after every number, equal ones go by name and labels.",
        example="fetch('disk.free').bottomk(5, by=[])",
        case=Example(GIVEN, (1.0, None, 2.0)),
        case_args="k=1",
        pushed="bottomk",
        run=bottomk,
        arguments=(_K, _RANK),
    ),
    Reducer(
        name="histogram_quantile",
        summary="Quantile (DOUBLE) of a histogram of cumulative buckets, as Prometheus defines it: classes are without "
        'the label of the upper bounds, le="+Inf" is needed, values lie evenly inside a bucket.',
        example="fetch('latency.bucket').rate(\"5m\").histogram_quantile(0.9, without=[])",
        case=Example(((1.0, None, 2.0), (4.0, None, None)), (float("nan"), None, float("nan"))),
        case_args="q=0.5, le='i'",
        run=histogram_quantile,
        arguments=(
            Argument("q", "number", "which quantile; below 0 gives -Inf, above 1 +Inf", unit="share"),
            Argument("le", "label", "the label of the upper bounds", "le"),
        ),
        carried="le",
        split="le",
        unit="that of the upper bounds",
    ),
)

ENTRIES: Mapping[str, Reducer] = read_only_table(*_MERGED, *_STATISTICS, *_OTHERS)

__all__ = ["ENTRIES", "Members", "Reduced", "Reducer"]
