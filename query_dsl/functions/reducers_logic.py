"""Reducers of truth and texts: any, all, the number of distinct values, texts joined to one."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np

from artimon.compute.checkpoint import charge_text, checkpoint
from artimon.model.values import INT64_MIN
from query_dsl.functions.filters_kernels import order_keys
from query_dsl.functions.join import series_name
from query_dsl.functions.points_casts import ENTRY_BYTES
from query_dsl.functions.reducers_base import GIVEN, ClassMembers, Reduced, Reducer
from query_dsl.functions.registry import Args, Argument
from query_dsl.results.result_cells import BOOLEAN, INTEGER, STRING, Bools, Cells, Example, Ints, of_type
from query_dsl.tree.query_errors import QueryError

MAX_JOINED = 65_536
"""Maximum length of a text that `join` makes, in characters: that of `replace`."""
NAN_KEY = INT64_MIN
"""Key of NaN: the least, as no other double has it."""


def any_true(members: ClassMembers, _args: Args) -> Reduced:
    """True where a member is true."""
    truths = _truths(members, "any")
    found = np.logical_or.reduceat(truths & members.column.present, members.starts, axis=0)
    return Reduced(of_type(BOOLEAN, found, members.counts > 0))


def all_true(members: ClassMembers, _args: Args) -> Reduced:
    """True where no member is false."""
    truths = _truths(members, "all")
    found = np.logical_and.reduceat(truths | ~members.column.present, members.starts, axis=0)
    return Reduced(of_type(BOOLEAN, found, members.counts > 0))


def _truths(members: ClassMembers, name: str) -> Bools:
    others = np.flatnonzero(members.column.types != BOOLEAN)
    if len(others):
        first = series_name(members.keys[int(others[0])])
        raise QueryError(f"{name} needs BOOLEAN, but {first} is not: compare first, as in (a > 1), or use to_boolean")
    return np.asarray(members.column.cells != 0)


def count_distinct(members: ClassMembers, _args: Args) -> Reduced:
    """Number of different values of the members; 1 and 1.0 and true are one value."""
    keys, present = _value_keys(members), members.column.present
    out = np.zeros(members.counts.shape, np.int64)
    for classes, rows in members.blocks():
        values, here = keys[rows], present[rows]
        order = np.lexsort((values, ~here), axis=1)
        values, here = np.take_along_axis(values, order, axis=1), np.take_along_axis(here, order, axis=1)
        differs = np.ones(here.shape, np.bool_)
        differs[:, 1:] = values[:, 1:] != values[:, :-1]
        out[classes] = (differs & here).sum(axis=1)
    return Reduced(of_type(INTEGER, out, np.ones(out.shape, np.bool_)))


def _value_keys(members: ClassMembers) -> Ints:
    """Return keys (series, n) that are equal for equal values of a class."""
    types, cells, present = members.column
    texts = types == STRING
    keys, number = order_keys(Cells(np.where(texts, INTEGER, types).astype(np.uint8), cells, present))
    keys = np.where(number, keys, NAN_KEY)
    if members.strings:
        first = {text: i for i, text in reversed([*enumerate(members.strings)])}
        same = np.array([first[text] for text in members.strings], np.int64)
        keys[texts] = same[np.where(present[texts], cells[texts], 0)]
    return keys


def join_texts(members: ClassMembers, args: Args) -> Reduced:
    """Texts of the members, one behind the other."""
    types, cells, present = members.column
    if (types != STRING).any():
        first = series_name(members.keys[int(np.argmax(types != STRING))])
        raise QueryError(f"join takes STRING, but {first} is not: use to_string before")
    made: dict[str, int] = {}
    out = np.zeros(members.counts.shape, np.int64)
    bounds = [*members.starts.tolist(), len(types)]
    for code, (start, stop) in enumerate(pairwise(bounds)):
        known: dict[bytes, int] = {}
        held = np.where(present[start:stop], cells[start:stop], -1).T.copy()
        for column, places in enumerate(held):
            checkpoint()
            mark = places.tobytes()
            if mark not in known:
                known[mark] = _cell_of(_joined(places, members.strings, args["separator"]), made)
            out[code, column] = known[mark]
    return Reduced(of_type(STRING, out, members.counts > 0), tuple(made))


def _joined(places: Ints, strings: tuple[str, ...], separator: str) -> str:
    texts = [strings[place] for place in places.tolist() if place >= 0]
    length = sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1)
    if length > MAX_JOINED:
        raise QueryError(
            f"join would make a text of {length} characters from {len(texts)} members: at most {MAX_JOINED}; choose "
            "fewer series, or smaller classes"
        )
    return separator.join(texts)


def _cell_of(text: str, made: dict[str, int]) -> int:
    if text not in made:
        charge_text(sys.getsizeof(text) + ENTRY_BYTES)
    return made.setdefault(text, len(made))


_TRUE_FALSE = ((True, None, False, True), (False, None, None, True))
_TEXTS = (("1", None, "2"), ("4", None, None))
ENTRIES = (
    Reducer(
        name="any",
        summary="True where a member is true (BOOLEAN); missing where none has a value. Takes BOOLEAN.",
        example="(fetch('disk.used') > 90).any(by=[\"host\"])",
        case=Example(_TRUE_FALSE, (1.0, None, 0.0, 1.0)),
        run=any_true,
        unit="true or false",
    ),
    Reducer(
        name="all",
        summary="True where every member that has a value is true (BOOLEAN); missing where none has. Takes BOOLEAN.",
        example="(fetch('endpoint.up') > 0).all(by=[\"dc\"])",
        case=Example(_TRUE_FALSE, (0.0, None, 0.0, 1.0)),
        run=all_true,
        unit="true or false",
    ),
    Reducer(
        name="count_distinct",
        summary="Number of different values among the members (INTEGER), of any type; 1, 1.0 and true are one, NaN is "
        "one; 0 if none has a value.",
        example="fetch('build.version').count_distinct(by=[\"dc\"])",
        case=Example((*GIVEN, (1.0, None, 3.0)), (2.0, 0.0, 2.0)),
        run=count_distinct,
        min_count=0,
        total=True,
        strings=True,
        one_kind=True,
        unit="values",
    ),
    Reducer(
        name="join",
        summary=f"Texts of the members that have one, in the order of name and labels (STRING); at most {MAX_JOINED} "
        "characters. Takes STRING.",
        example='fetch(\'build.version\').to_string().join(", ", by=["dc"])',
        case=Example(_TEXTS, (14.0, None, 2.0)),
        case_args="separator=''",
        run=join_texts,
        arguments=(Argument("separator", "text", "text between two of them", ", "),),
        strings=True,
    ),
)
