"""Reducers by rank: the greatest and smallest members, and labels of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.model.values import INT64_MIN
from query_dsl.functions.filters_kernels import order_keys, summarize
from query_dsl.functions.reducers_base import GIVEN, ClassMembers, Reduced, Reducer
from query_dsl.functions.registry import Args, Argument
from query_dsl.results.label_table import LabelTable
from query_dsl.results.result_cells import STRING, Bools, Cells, Example, Ints, of_type, take


def topk(members: ClassMembers, args: Args) -> Reduced:
    return _best(members, args, True)


def bottomk(members: ClassMembers, args: Args) -> Reduced:
    return _best(members, args, False)


def argmax(members: ClassMembers, args: Args) -> Reduced:
    return _label_of(members, args["label"], True)


def argmin(members: ClassMembers, args: Args) -> Reduced:
    return _label_of(members, args["label"], False)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Sort keys (series, n), greatest wanted, with masks of numbers and of NaN."""

    keys: Ints
    number: Bools
    nan: Bools


def _ranked(column: Cells, greatest: bool) -> _Ranked:
    keys, number = order_keys(column)
    return _Ranked(np.where(number, keys if greatest else ~keys, INT64_MIN), number, column.present & ~number)


def _best(members: ClassMembers, args: Args, greatest: bool) -> Reduced:
    column, k = members.column, args["k"]
    if args["rank"] == "each":
        kept = Cells(column.types, column.cells, _chosen(members, _ranked(column, greatest), k))
        return Reduced(kept, members.strings, members.keys, members.codes, sparse=True)
    judged = replace(members, column=summarize(column, args["rank"]))
    rows = _chosen(judged, _ranked(judged.column, greatest), k)[:, 0]
    keys = [members.keys[row] for row in np.flatnonzero(rows).tolist()]
    return Reduced(take(column, rows), members.strings, keys, members.codes[rows])


def _chosen(members: ClassMembers, ranked: _Ranked, k: int) -> Bools:
    """Mask of the k best per class and column: numbers, then NaN; ties take the first."""
    out = ranked.number | ranked.nan
    for _, rows in members.blocks():
        size = rows.shape[1]
        if size <= k:
            continue
        keys, number, nan = ranked.keys[rows], ranked.number[rows], ranked.nan[rows]
        least = np.partition(keys, size - k, axis=1)[:, size - k, None]
        above, equal = number & (keys > least), number & (keys == least)
        above |= equal & (np.cumsum(equal, axis=1) <= k - above.sum(axis=1)[:, None])
        if nan.any():
            above |= nan & (np.cumsum(nan, axis=1) <= k - above.sum(axis=1)[:, None])
        out[rows] = above
    return out


def _label_of(members: ClassMembers, label: str, greatest: bool) -> Reduced:
    """Return the label of the member with the extreme value; ties take the first; NaN counts only without numbers."""
    ranked = _ranked(members.column, greatest)
    extreme = np.maximum.reduceat(ranked.keys, members.starts, axis=0)
    numbers = np.logical_or.reduceat(ranked.number, members.starts, axis=0)
    at = ranked.number & (ranked.keys == members.every(extreme)) | ranked.nan & ~members.every(numbers)
    rows, found = members.first(at)
    column = LabelTable(members.keys).column(label)
    return Reduced(of_type(STRING, column.codes[rows], found), tuple(column.values))


RANKS = ("last", "mean", "max", "min", "each")
_K = Argument("k", "integer", "number of members of each class", least=1, unit="series")
_RANK = Argument(
    "rank",
    "choice",
    "value to rank by: newest, mean, max or min over the range, or the value at each step",
    "last",
    choices=RANKS,
)
_LABEL = Argument("label", "label", 'the label that is shown; "__name__" for the name')
ENTRIES = (
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
        one_per_class=False,
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
        one_per_class=False,
        arguments=(_K, _RANK),
    ),
)
