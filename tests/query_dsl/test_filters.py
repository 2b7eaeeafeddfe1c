"""Filters and rankings against Python's own comparisons."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_dsl import QueryError, evaluate, parse
from query_dsl.functions.filters import match_keys, satisfies
from query_dsl.functions.filters_kernels import COMPARISONS, best_rows, compare, rank_rows, summarize
from query_dsl.results.result_cells import BOOLEAN, DOUBLE, INTEGER, STRING, Cells, SeriesKey
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree.selector import parse_selector
from tests.query_dsl.plain_store import MINUTE, PlainStore

OPS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
STRINGS = ("a", "b", "", "a")
Value = int | float | bool | str
Row = tuple[int, list[Value | None]]
WIDTH = 4


def values_of(kind: int) -> st.SearchStrategy[Value]:
    if kind == INTEGER:
        return st.integers(2**53 - 2, 2**53 + 2) | st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
    if kind == DOUBLE:
        return st.sampled_from([0.0, -0.0, 1.0, 5.9, math.nan, math.inf, -math.inf, float(2**53)])
    return st.booleans() if kind == BOOLEAN else st.sampled_from(["a", "b", ""])


@st.composite
def row_lists(draw: st.DrawFn, kinds: tuple[int, ...] = (INTEGER, DOUBLE, BOOLEAN, STRING)) -> list[Row]:
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    return [(k, draw(st.lists(st.none() | values_of(k), min_size=WIDTH, max_size=WIDTH))) for k in chosen]


def column(given_rows: list[Row]) -> Cells:
    cells = np.zeros((len(given_rows), WIDTH), np.int64)
    for i, (kind, row) in enumerate(given_rows):
        for j, value in enumerate(row):
            if isinstance(value, str):
                cells[i, j] = STRINGS.index(value)
            elif value is not None:
                cells[i, j] = np.float64(value).view(np.int64) if kind == DOUBLE else int(value)
    present = np.array([[v is not None for v in row] for _, row in given_rows], np.bool_)
    return Cells(np.array([kind for kind, _ in given_rows], np.uint8), cells, present)


def plain(kind: int, value: Value | None, op: str, other: Value) -> bool:
    """Integers as integers, else as floats; a text with texts only."""
    if value is None:
        return False
    if isinstance(other, str) != (kind == STRING):
        return op == "!="
    if isinstance(other, str):
        return bool(OPS[op](value, other))
    if kind != DOUBLE and isinstance(other, int):
        return bool(OPS[op](int(value), int(other)))
    return bool(OPS[op](float(value), float(other)))


OTHERS = st.integers(2**53 - 2, 2**53 + 2) | st.sampled_from([0, 1, True, False, 5.9, 1.0, math.nan, "a", "", "z"])


@given(row_lists(), st.sampled_from(COMPARISONS), OTHERS)
def test_comparing(given_rows: list[Row], op: str, other: Value) -> None:
    if isinstance(other, str) and op not in ("==", "!="):
        return
    found = compare(column(given_rows), op, other, STRINGS).tolist()
    assert found == [[plain(kind, v, op, other) for v in row] for kind, row in given_rows]


@given(row_lists(), st.sampled_from(["last", "first", "any", "all"]), st.sampled_from(["==", "!="]), OTHERS)
def test_meeting(given_rows: list[Row], name: str, op: str, other: Value) -> None:
    def one(kind: int, row: list[Value | None]) -> bool:
        known = [plain(kind, v, op, other) for v in row if v is not None]
        if not known or name in ("any", "all"):
            return bool(known) and (any(known) if name == "any" else all(known))
        return known[-1] if name == "last" else known[0]

    assert satisfies(column(given_rows), name, op, other, STRINGS).tolist() == [one(*row) for row in given_rows]


@given(row_lists((INTEGER, DOUBLE, BOOLEAN)), st.sampled_from(["min", "max", "mean"]))
def test_summaries(given_rows: list[Row], name: str) -> None:
    found = summarize(column(given_rows), name)
    for i, (kind, row) in enumerate(given_rows):
        known = [v for v in row if v is not None]
        assert bool(found.present[i, 0]) == bool(known)
        if not known:
            continue
        if name == "mean" or kind == DOUBLE:
            value = float(np.ascontiguousarray(found.cells[i]).view(np.float64)[0])
            floats = [float(v) for v in known]
            poisoned = any(math.isnan(v) for v in floats)
            if name == "mean":
                expect = sum(floats) / len(floats) if not poisoned else math.nan
            else:
                expect = math.nan if poisoned else min(floats) if name == "min" else max(floats)
            assert value == expect or math.isclose(value, expect) or (math.isnan(value) and math.isnan(expect))
        else:
            whole = [int(v) for v in known]
            assert int(found.cells[i, 0]) == (min(whole) if name == "min" else max(whole))


@given(row_lists((INTEGER, BOOLEAN)) | row_lists((DOUBLE,)) | row_lists(), st.booleans())
def test_ranking(given_rows: list[Row], greatest_first: bool) -> None:
    def key(i: int) -> tuple[int, float, int]:
        _, row = given_rows[i]
        known = [v for v in row if v is not None]
        if not known:
            return 2, 0, i
        value = known[-1]
        if isinstance(value, str):
            return 2, 0, i
        if isinstance(value, float) and math.isnan(value):
            return 1, 0, i
        return 0, -value if greatest_first else value, i  # Python compares int and float exactly

    found = rank_rows(column(given_rows), "last", greatest_first).tolist()
    assert found == sorted(range(len(given_rows)), key=key)


@given(row_lists((INTEGER, DOUBLE, BOOLEAN)), st.integers(1, 4), st.booleans())
def test_the_best_keep_their_order(given_rows: list[Row], k: int, greatest: bool) -> None:
    found = best_rows(column(given_rows), "last", k, greatest).tolist()
    valued = [i for i, (_, row) in enumerate(given_rows) if any(v is not None for v in row)]
    assert found == sorted(found)
    assert set(found) <= set(valued)
    assert len(found) == min(k, len(valued))


def test_labels_of_many_series() -> None:
    keys = [SeriesKey("x", (("host", f"h{i % 10}"),)) for i in range(1_000)]
    fits = match_keys(keys, parse_selector('{host=~"h[12]",rack!="r1"}', of_all=False).matchers)
    assert int(fits.sum()) == 200


@pytest.mark.parametrize("name", ["last", "first", "any", "all", "min", "max", "mean", "size", "top", "bottom"])
def test_filters_of_no_series_give_none(name: str) -> None:
    store = PlainStore().add("x", {}, [(50 * MINUTE, 1)])
    args = {"top": "1", "bottom": "1"}.get(name, '"==", 1')
    query = parse(f"fetch('x').filter(\"{name}\", {args}).between(0, 60000)")
    found = evaluate(query, store, 50 * MINUTE + SETTLE_MS)
    assert len(found) == 0
    assert found.grid.n == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ('"last", "=", 1', "op cannot be '='"),
        ('"last", ">"', "needs value"),
        ('"top", 0', "at least 1"),
        ('"top", 1, rank="each"', "rank cannot be 'each'"),
        ('"size", ">", -1', "at least 0"),
        ('"last", ">", 1000000000000000000000', "not a 64-bit integer"),
        ('"min", "==", "a"', "takes a number"),
        ('"stale"', "needs age"),
        ("'{rack='", "quotes"),
        ('"newest", ">", 1', "unknown filter 'newest'"),
    ],
)
def test_errors(call: str, error: str) -> None:
    store = PlainStore().add("x", {}, [(MINUTE, 1)])
    with pytest.raises(QueryError, match=error):
        evaluate(parse(f"fetch('x').filter({call}).at(60000)"), store, MINUTE + SETTLE_MS)


def test_a_filter_of_many_series_is_quick() -> None:
    """100,000 series of 60 buckets: a few array operations, no loop over cells."""
    types = np.full(100_000, INTEGER, np.uint8)
    cells = np.arange(6_000_000, dtype=np.int64).reshape(100_000, 60)
    big = Cells(types, cells, np.ones(cells.shape, np.bool_))
    assert int(satisfies(big, "last", ">=", 3_000_000, ()).sum()) == 50_000
    assert best_rows(big, "mean", 3, True).tolist() == [99_997, 99_998, 99_999]
