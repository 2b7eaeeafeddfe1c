"""Fillers against plain loops over one series."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import QueryError
from query_dsl.functions.fills import fill_from_neighbours, fill_linear, fill_value, neighbours
from query_dsl.results.result_cells import DOUBLE, INTEGER, Cells
from tests.query_dsl.plain_store import MINUTE, PlainStore, ask

Row = list[int | float | None]
ROWS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12)
FLOATS = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=12)
GAP = st.none() | st.integers(0, 13)


def cells(rows: list[Row], kind: int) -> Cells:
    present = np.array([[v is not None for v in row] for row in rows], np.bool_)
    if kind == DOUBLE:
        data = np.array([[0.0 if v is None else v for v in row] for row in rows], np.float64).view(np.int64)
    else:
        data = np.array([[v or 0 for v in row] for row in rows], np.int64)
    return Cells(np.full(len(rows), kind, np.uint8), data, present)


def back(column: Cells) -> list[Row]:
    data: Any = column.cells.view(np.float64) if column.types[0] == DOUBLE else column.cells
    return [
        [v if p else None for v, p in zip(values, mask, strict=True)]
        for values, mask in zip(data.tolist(), column.present.tolist(), strict=True)
    ]


def plain_value(row: Row, value: int, longest: int | None) -> Row:
    out, at = list(row), 0
    while at < len(row):
        end = at
        while end < len(row) and row[end] is None:
            end += 1
        if end > at and (longest is None or end - at <= longest):
            out[at:end] = [value] * (end - at)
        at = max(end, at + 1)
    return out


def plain_previous(row: Row, farthest: int | None) -> Row:
    out: Row = []
    for at, value in enumerate(row):
        known = [i for i in range(at + 1) if row[i] is not None]
        near = bool(known) and (farthest is None or at - known[-1] <= farthest)
        out.append(row[known[-1]] if near else value)
    return out


def plain_linear(row: Row, farthest: int | None) -> Row:
    out: Row = [None if v is None else float(v) for v in row]
    known = [i for i, v in enumerate(row) if v is not None]
    for a, b in pairwise(known):
        left, right = out[a], out[b]
        assert left is not None
        assert right is not None
        for at in range(a + 1, b) if farthest is None or b - a <= farthest else ():
            share = (at - a) / (b - a)
            line = left + (right - left) * (at - a) / (b - a)
            if not math.isfinite(line) and math.isfinite(left) and math.isfinite(right):
                line = left * (1 - share) + right * share
            out[at] = line
    return out


@given(st.lists(ROWS, min_size=1, max_size=3), GAP)
def test_value(rows: list[Row], gap: int | None) -> None:
    for row in rows:
        column = cells([row], INTEGER)
        value = Cells(column.types, np.array([[2**60 + 1]]), np.ones((1, 1), np.bool_))
        assert back(fill_value(column, value, gap)) == [plain_value(row, 2**60 + 1, gap)]


@given(ROWS, GAP)
def test_previous_and_next(row: Row, gap: int | None) -> None:
    column = cells([row], INTEGER)
    before, after = neighbours(column.present)
    assert back(fill_from_neighbours(column, before, gap)) == [plain_previous(row, gap)]
    assert back(fill_from_neighbours(column, after, gap)) == [plain_previous(row[::-1], gap)[::-1]]


@given(FLOATS, GAP)
def test_linear(row: Row, gap: int | None) -> None:
    assert repr(back(fill_linear(cells([row], DOUBLE), gap))) == repr([plain_linear(row, gap)])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | st.integers(0, 9), min_size=16, max_size=16),
    st.sampled_from(["previous", "linear", "next", "value"]),
    st.none() | st.integers(1, 8),
    st.integers(1, 8),
)
def test_a_part_of_the_range_is_filled_like_the_whole(row: Row, name: str, gap: int | None, n: int) -> None:
    """The answer over a part of the range equals that part of the whole answer, if `max_gap` bounds the fill."""
    store = PlainStore()
    store.add("x", {}, [((i + 1) * MINUTE, v) for i, v in enumerate(row) if v is not None])
    args = ("0, " if name == "value" else "") + (f'max_gap="{gap}m"' if gap else "max_gap=None")
    found = ask(f"fetch('x').fill(\"{name}\", {args}).between({(16 - n) * MINUTE}, {16 * MINUTE})", store, 16 * MINUTE)
    ways: dict[str, Callable[[Row], Row]] = {
        "previous": lambda r: plain_previous(r, gap),
        "linear": lambda r: plain_linear(r, gap),
        "next": lambda r: plain_previous(r[::-1], gap)[::-1],
        "value": lambda r: plain_value(r, 0, gap),
    }
    back_by = gap if gap and name in ("previous", "linear") else 0
    seen = row[max(0, 16 - n - back_by) :]
    if not any(v is not None for v in seen):
        assert len(found) == 0
        return
    assert repr(found.tolist(0)) == repr(ways[name](seen)[-n:])


def test_looking_back_is_bounded_and_said() -> None:
    """A level holds only its rows: a note names cells that an earlier value might have filled."""
    store = PlainStore(level_table=((MINUTE, 4),))
    store.add("x", {}, [(MINUTE, 1), (39 * MINUTE, 2)])
    found = ask('fetch(\'x\').fill("previous", max_gap="1h").range("4m")', store, 40 * MINUTE)
    assert found.tolist(0) == [None, None, 2, 2]
    assert any("1 series begin without a value" in note and "max_gap=1h" in note for note in found.notes)
    assert store.requests[-1].grid.n == 4 + 17


def test_a_gap_beyond_all_bounds_is_refused_or_cut() -> None:
    store = PlainStore(level_table=((MINUTE, 10**9),))
    store.add("x", {}, [(MINUTE, 1)])
    with pytest.raises(QueryError, match=r"would read .* buckets per series: use at most 20000"):
        ask('fetch(\'x\').fill("previous", max_gap="10000d").between(0, 960000)', store, 16 * MINUTE)


def test_filling_with_what_is_no_int64() -> None:
    store = PlainStore().add("x", {}, [(MINUTE, 1)])
    with pytest.raises(QueryError, match="not a 64-bit integer"):
        ask(f"fetch('x').fill(\"value\", {10**30}).between(0, 60000)", store, 16 * MINUTE)


def test_results_are_read_only() -> None:
    store = PlainStore().add("x", {}, [(MINUTE, 1)])
    found = ask("fetch('x').fill(\"value\", 7).between(0, 120000)", store, 16 * MINUTE)
    assert found.tolist(0) == [1, 7]
    with pytest.raises(ValueError, match="read-only"):
        found.cells[0, 0] = 3
