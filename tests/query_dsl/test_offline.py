"""Samples in lists as a store: types, births, ends, any grid, and clear errors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.grid import Grid
from artimon.model.values import Kind
from query_dsl import QueryError, evaluate, offline, parse
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.literal_samples import UNKNOWN_START_MS
from tests.query_dsl.engine_worlds import made_of, request_of
from tests.query_dsl.plain_store import MINUTE, PlainStore, Sample
from tests.query_dsl.test_engines_auto import plain


def test_types_follow_the_values() -> None:
    store = offline(
        {
            "i": [(60_000, 2**60)],
            "d": [(60_000, 1.5)],
            "b": [(60_000, True)],
            "s": [(60_000, "on")],
            "t": [(1, 1), (2, 2.5)],
        }
    )
    found = store.query("fetch('{__name__=~\"[a-z]\"}').range('1m')")
    assert dict(zip(found.names, found.latest(), strict=True)) == {"i": 2**60, "d": 1.5, "b": True, "s": "on", "t": 2.5}


def test_one_float_makes_all_numbers_of_its_series_doubles() -> None:
    """46.5, 23, 42 is a list of numbers, whatever their order; others keep their types, and texts are no numbers."""
    store = offline({"x": [(MINUTE, 46.5), (2 * MINUTE, 23), (3 * MINUTE, 42)], "y": [(3 * MINUTE, 2**60)]})
    found = store.query("fetch('{__name__=~\"x|y\"}').range('3m')")
    assert dict(list(found)) == {"x": [46.5, 23.0, 42.0], "y": [None, None, 2**60]}
    assert [type(value) for value in found.tolist(0)] == [float] * 3
    mixed = offline({"x": [(1, "a"), (2, 5), (3, 2.5)]}).query("fetch('x')")
    assert mixed.latest() == ["a"]
    assert offline({"x": [(1, True), (2, 2.5)]}).query("fetch('x')").latest() == [True]


def test_scalars_of_numpy_and_times_of_pandas() -> None:
    times = pd.date_range("2026-11-21T13:00:00Z", periods=3, freq="1min")
    whole = offline({"x": list(zip(times, np.arange(3), strict=True))}).query("fetch('x').range('3m')")
    assert dict(list(whole)) == {"x": [0, 1, 2]}
    points: Any = [(np.int64(MINUTE), np.float64(2.5)), (np.int64(2 * MINUTE), np.bool_(True))]
    assert offline({"x": points[:1]}).query("fetch('x')").latest() == [2.5]
    assert offline({"x": points[1:]}).query("fetch('x')").latest() == [True]


def test_times_of_any_kind() -> None:
    store = offline(
        {"x": [("2026-11-21T13:00:00Z", 1), (datetime(2026, 11, 21, 13, 1, tzinfo=UTC), 2), (1795266120000.0, 3)]}
    )
    assert store.query("fetch('x').range('3m')").tolist(0) == [1, 2, 3]


def test_births_and_kinds_make_a_counter() -> None:
    points = [(MINUTE, 5), (2 * MINUTE, 8), (3 * MINUTE, 2)]
    births = [1, 1, 2 * MINUTE + 30_000]
    store = offline({"c": points}, births={"c": births}, kinds={"c": "counter"})
    found = store.query("fetch('c').increase('1m').range('3m')")
    assert found.tolist(0) == [5, 3, 2]
    gauge = offline({"c": points}, kinds={"c": Kind.GAUGE}).query("fetch('c').increase('1m').range('3m')")
    assert any("gauge" in note for note in gauge.notes)


@pytest.mark.parametrize("how", ["none", "ended"])
def test_after_its_end_a_series_is_missing(how: str) -> None:
    points: list[Any] = [(MINUTE, 1), (2 * MINUTE, 2)]
    end = 2 * MINUTE + 5
    store = offline({"x": [*points, (end, None)]}) if how == "none" else offline({"x": points}, ended={"x": end})
    found = store.query("fetch('x').map('last', '5m').range('4m')", at=4 * MINUTE + SETTLE_MS)
    assert found.tolist(0) == [1, 2, None, None]


def test_any_grid() -> None:
    store = offline({"x": [(i * 1000, i) for i in range(1, 121)]}, step="10s")
    assert store.query("fetch('x').bucketize('count', '7s').range('35s')", at=100_000 + SETTLE_MS).tolist(0) == [7] * 5
    assert store.query("fetch('x').map('count').range('30s')").tolist(0) == [10, 10, 10]
    assert store.query("fetch('x').map('max').between(0, 60000)").grid == Grid(60_000, 10_000, 6)


def test_samples_come_back_as_they_were() -> None:
    store = offline({"x": [(3, 2), (1, 1)], "y": [(2, "a")]})
    found: Any = store.query("samples('x').between(0, 3)")
    assert found.tolist(0) == [(1, 1), (3, 2)]


def test_an_expression_runs_where_it_was_fetched() -> None:
    store = offline({"x": [(MINUTE, 1)]})
    assert (store.fetch("x") + 1).collect().latest() == [2]
    assert store.parse("fetch('x') * 3").collect().latest() == [3]


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ({"x{": []}, {}, "not closed"),
    ({'x{a!="1"}': []}, {}, "not a single series"),
    ({'{a="1"}': []}, {}, "not a single series"),
    ({1: []}, {}, "name of a series is a text"),
    ([("x", [])], {}, "takes a dict"),
    ({"x": [5]}, {}, "sample 0 of x is 5: write"),
    ({"x": [(1, 2, 3)]}, {}, "sample 0 of x"),
    ({"x": [(1, 1), ("yesterday", 2)]}, {}, "sample 1 of x"),
    ({"x": [("now-1h", 2)]}, {}, "no fixed time"),
    ({"x": [(1, [])]}, {}, "use a number, a text"),
    ({"x": [(1, 2**63)]}, {}, "not a 64-bit integer"),
    ({"x": [(1, 2)]}, {"kinds": {"x": "thing"}}, "counter, gauge or unknown"),
    ({"x": [(1, 2)]}, {"kinds": {"y": "gauge"}}, "not one of the series"),
    ({"x": [(1, 2)]}, {"births": {"x": [1, 2]}}, "2 for 1 samples"),
    ({'x{a="1",b="2"}': [], 'x{b="2",a="1"}': []}, {}, "the same series"),
    ({"x": []}, {"step": "fast"}, "not a duration"),
]


@pytest.mark.parametrize(("series", "options", "words"), WRONG)
def test_wrong_input_is_named(series: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(QueryError, match=words):
        offline(series, **options)


def test_samples_of_another_type_are_left_out_and_counted() -> None:
    found = offline({"x": [(1, "a"), (2, 5), (3, "b")]}).query("fetch('x')")
    assert found.latest() == ["b"]
    assert "1 samples left out: their type is not that of their series" in found.notes


COUNTED = [(1, 5), (2, 9), (3, 4), (4, 10), (5, 1)]
"""Minutes and values of a counter that restarts twice."""


@pytest.mark.parametrize("function", ["increase", "rate", "delta"])
@pytest.mark.parametrize("form", ["fetch('x').{f}('5m')", "samples('x').map('{f}', '5m').bucketize('last', '1m')"])
@pytest.mark.parametrize("births", [None, 0, MINUTE - 1])
def test_a_falling_counter_begins_anew(function: str, form: str, births: int | None) -> None:
    """4 + 4 + 6 + 1 are counted from the first sample, from a known start 5 more; a gauge falls."""
    samples = [(minute * MINUTE, value) for minute, value in COUNTED]
    told = None if births is None else {"x": births}
    text = form.format(f=function) + ".at('now')"
    found = offline({"x": samples}, kinds={"x": "counter"}, births=told).query(text)
    counted, seconds = (20, 240.001) if births else (15, 240)
    expected = {"increase": counted, "rate": counted / seconds, "delta": -4}
    assert found.latest() == [pytest.approx(expected[function])]


def test_a_count_with_a_list_of_start_times_is_taken_as_it_is() -> None:
    samples = [(minute * MINUTE, value) for minute, value in COUNTED[1:3]]
    store = offline({"x": samples}, kinds={"x": "counter"}, births={"x": [1, 1]})
    assert store.query("fetch('x').increase('2m').at('now')").latest() == [4]


QUARTERS = st.integers(-50, 50).map(lambda whole: whole / 4)
"""Whatever their order, they add up to the same."""
QUERIES = [
    "fetch('v').range('20m')",
    "fetch('v').increase('3m').range('15m')",
    "fetch('v').rate('5m').range('10m')",
    "fetch('v').map('mean', '4m').range('10m')",
    "fetch('v').bucketize('max', '5m').range('20m')",
    "fetch('v').map('delta', '2m').sum(by=[]).range('10m')",
]


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.integers(1, 20 * MINUTE), min_size=1, max_size=30, unique=True),
    double=st.booleans(),
    births=st.lists(st.integers(1, 20 * MINUTE), max_size=3),
    data=st.data(),
    text=st.sampled_from(QUERIES),
)
def test_answers_are_those_of_the_plain_store(times: Any, double: bool, births: Any, data: Any, text: str) -> None:
    times, births = sorted(times), sorted(births)
    values = [data.draw(QUARTERS if double else st.integers(-50, 50)) for _ in times]
    born = [max([b for b in births if b <= t], default=UNKNOWN_START_MS) for t in times]
    slow = PlainStore().add("v", {}, [Sample(t, v, b) for t, v, b in zip(times, values, born, strict=True)])
    quick = offline({"v": list(zip(times, values, strict=True))}, births={"v": born})
    now = 20 * MINUTE + SETTLE_MS
    assert plain(evaluate(parse(text), slow, now)) == plain(evaluate(parse(text), quick, now))
    request = request_of(["v"], Grid(20 * MINUTE, MINUTE, 20))
    assert list(made_of(quick.select(request)).values()) == list(made_of(slow.select(request)).values())
