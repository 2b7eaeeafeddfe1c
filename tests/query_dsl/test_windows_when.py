"""Window functions of when: times of extremes, time since a change, longest streak."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import QueryError, offline
from tests.query_dsl.window_rows import STEP, values

MINUTE = 60_000
CELLS: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1, 2**53, 2**53 + 1]),
    float: st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan]),
    bool: st.booleans(),
}


@st.composite
def rows(draw: Any) -> tuple[list[Any], int]:
    """A row of one type with missing values, and a width of windows."""
    kind = draw(st.sampled_from(list(CELLS)))
    row = draw(st.lists(st.none() | CELLS[kind], min_size=1, max_size=12))
    return row, draw(st.integers(1, len(row)))


def windows(row: list[Any], width: int) -> list[list[tuple[int, Any]]]:
    """(time, value) of each window."""
    timed = [(STEP * (i + 1), v) for i, v in enumerate(row)]
    return [timed[i : i + width] for i in range(len(row) - width + 1)]


def held(window: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    return [(t, v) for t, v in window if v is not None]


def equal(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


@settings(max_examples=200, deadline=None)
@given(rows())
def test_times_of_extremes(given_: tuple[list[Any], int]) -> None:
    row, width = given_
    for name, choose in (("time_of_max", max), ("time_of_min", min)):
        for window, got in zip(windows(row, width), values(name, [row], width)[0], strict=True):
            numbers = [(t, v) for t, v in held(window) if v == v] or held(window)
            wanted = choose((v for _, v in numbers), default=None)
            assert got == max((t for t, v in numbers if equal(v, wanted)), default=None)


@settings(max_examples=200, deadline=None)
@given(rows())
def test_time_since_a_change(given_: tuple[list[Any], int]) -> None:
    row, width = given_
    for window, got in zip(windows(row, width), values("since_change", [row], width)[0], strict=True):
        known = held(window)
        changed = [t for (_, a), (t, b) in pairwise(known) if not equal(a, b)]
        assert got == ((window[-1][0] - changed[-1]) / 1000 if changed else None)


@settings(max_examples=200, deadline=None)
@given(rows())
def test_longest_streaks(given_: tuple[list[Any], int]) -> None:
    row, width = given_
    for window, got in zip(windows(row, width), values("longest_streak", [row], width)[0], strict=True):
        runs = groupby(window, key=lambda one: one[1] is not None and one[1] == one[1] and bool(one[1]))
        longest = max((len([*run]) for true, run in runs if true), default=0)
        assert got == (longest * STEP / 1000 if held(window) else None)


def test_daily_questions() -> None:
    """When was the load highest; for how long was it up; since when does this version run."""
    store = offline({
        "load": [(i * MINUTE, abs(7 - i)) for i in range(1, 11)],
        "build": [(i * MINUTE, "a" if i < 6 else "b") for i in range(1, 11)],
    })  # fmt: skip
    assert store.query("fetch('load').time_of_min('10m').at('now')").latest() == [7 * MINUTE]
    assert store.query("(fetch('load') > 1).longest_streak('10m').at('now')").latest() == [300.0]
    assert store.query("fetch('build').since_change('10m').at('now')").latest() == [240.0]
    assert store.query("fetch('build').since_change('3m').at('now')").latest() == [None]


@pytest.mark.parametrize("name", ["time_of_max", "time_of_min", "longest_streak"])
def test_raw_samples_have_no_buckets(name: str) -> None:
    store = offline({"load": [(MINUTE, 1)]})
    for text in (f"samples('load').{name}('5m')", f"samples('load').bucketize('{name}', '5m')"):
        with pytest.raises(QueryError, match=f"{name} takes series on a grid, and samples"):
            store.query(text)
