"""Limits of PromQL queries whose values, pairs or texts could grow without bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from query_dsl.promql import PromqlError, PromqlResult, instant_query, query_store, range_query
from query_dsl.promql.scripted_samples import LiteralSamples
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.stores.query_limits import LimitExceeded, Limits, QueryBudget
from tests.query_dsl.plain_store import MINUTE, PlainStore

NOW = 1_700_000_100_000
LONG = "x" * 1_000


def samples(count: int, points: int = 1) -> LiteralSamples:
    """Series `a` and `b`, `count` of each, with different values at each minute."""
    made = LiteralSamples()
    for i in range(count):
        for name in ("a", "b"):
            made.add({"__name__": name, "n": str(i), "long": LONG}, {m * MINUTE: i + m / 100 for m in range(points)})
    return made


def small(**limits: int) -> QueryBudget:
    return QueryBudget(Limits(**limits))


def test_labels_have_a_length() -> None:
    source = samples(1)
    joined = ", ".join(['"long"'] * 65)
    assert instant_query(f'label_join(a, "to", "-", {joined})', 0, source).labels.count == 1
    with pytest.raises(PromqlError, match="at most 65,536"):
        instant_query(f'label_join(a, "to", "-", {joined}, "long")', 0, source)
    with pytest.raises(PromqlError, match="makes a label of 66,000 characters"):
        instant_query(f'label_replace(a, "to", "{"$1" * 66}", "long", "(.*)")', 0, source)


def test_texts_of_all_labels_have_a_limit() -> None:
    source = samples(50)
    query = 'label_replace(a, "to", "$1$2", "n", "(.*)()")'
    assert instant_query(query, 0, source, budget=small(text_bytes=90)).labels.count == 50
    with pytest.raises(LimitExceeded, match="text_bytes"):
        instant_query(query, 0, source, budget=small(text_bytes=80))
    with pytest.raises(LimitExceeded, match="text_bytes"):
        range_query('count_values("v", a)', 0, 9 * MINUTE, MINUTE, samples(50, 10), budget=small(text_bytes=1_000))


def test_pairs_are_counted_before_they_are_made() -> None:
    source = LiteralSamples()
    for i in range(200):
        source.add({"__name__": "one", "n": str(i)}, {i * 10 * MINUTE: 1.0})
        source.add({"__name__": "many", "n": str(i)}, {0: 1.0})
    query, end_ms = "many * on () group_left () one", 2_000 * MINUTE
    with pytest.raises(LimitExceeded, match="memory_bytes"):
        range_query(query, 0, end_ms, 10 * MINUTE, source, budget=small(memory_bytes=20_000_000))
    assert range_query(query, 0, 0, MINUTE, source, budget=small(memory_bytes=20_000_000)).labels.count == 200


def test_classes_of_values_are_counted_before_they_are_made() -> None:
    query = 'count_values("v", a)'
    found = range_query(query, 0, 9 * MINUTE, MINUTE, samples(30, 10))
    assert (found.labels.count, float(found.values[found.here].sum())) == (300, 300.0)
    with pytest.raises(LimitExceeded, match="memory_bytes"):
        range_query(query, 0, 9 * MINUTE, MINUTE, samples(30, 10), budget=small(memory_bytes=60_000))


def test_numbers_in_labels_have_any_length() -> None:
    source = LiteralSamples()
    for digits in ("9" * 5_000, "1" + "0" * 5_000, "2", "010"):
        source.add({"__name__": "a", "n": digits}, {0: 1.0})
    found = instant_query('sort_by_label(a, "n")', 0, source)
    assert [len(text) for text in found.labels.texts("n")] == [1, 3, 5_000, 5_001]


class Ended(Exception):
    """The caller called the query off."""


@pytest.mark.parametrize(
    "query",
    [
        "topk(2, a)",
        "quantile(0.5, a)",
        'histogram_quantile(0.5, label_replace(a, "le", "1", "n", ".*"))',
        "stddev_over_time(a[5m])",
        'label_join(a, "to", "-", "n", "n")',
    ],
)
def test_a_query_ends_within_its_loops(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check raises at its last call, which a loop makes: a query of so few nodes calls it a few times otherwise."""
    monkeypatch.setattr("artimon.compute.packed_samples.MAX_GATHERED", 1_000)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1

    def run(check: Callable[[], None]) -> PromqlResult:
        return range_query(query, 0, 99 * MINUTE, MINUTE, samples(40, 100), budget=QueryBudget(checks=(check,)))

    assert run(check).labels.count
    few = calls

    def late() -> None:
        nonlocal calls
        calls -= 1
        if calls <= 0:
            raise Ended

    with pytest.raises(Ended):
        run(late)
    assert few > 10


def test_a_select_is_limited_before_it_is_read() -> None:
    store = PlainStore()
    for i in range(20):
        store.add("heat", {"host": str(i)}, [(NOW - MINUTE, float(i))])
    assert query_store("sum(heat)", as_engine_store(store), NOW).labels.count == 1
    with pytest.raises(LimitExceeded, match="more than the limit of 10 series"):
        query_store("sum(heat)", as_engine_store(store), NOW, budget=small(series=10))
    with pytest.raises(LimitExceeded, match="fit into the limit of 1,000 bytes"):
        query_store("sum(heat)", as_engine_store(store), NOW, budget=small(memory_bytes=1_000))


def test_before_memory_and_without_history_nothing_is_selected() -> None:
    class Counting(PlainStore):
        def select(self, request):  # type: ignore[no-untyped-def]
            raise AssertionError("selected")

    store = Counting().add("heat", {}, [(NOW - MINUTE, 1.0)])
    found = query_store("heat", as_engine_store(store), NOW, end_ms=1_000_000)
    assert (found.labels.count, len(found.warnings)) == (0, 1)


def test_limited_series_count_within_each_class() -> None:
    """`limitk` counts the series that have a value at the step, in each class."""
    source = LiteralSamples()
    rng = np.random.default_rng(7)
    for i in range(60):
        held = {m * MINUTE: 1.0 for m in range(5) if rng.random() < 0.6}
        source.add({"__name__": "a", "class": str(i % 7), "n": str(i)}, held)
    found = range_query("limitk by (class) (3, a)", 0, 4 * MINUTE, MINUTE, source, look_back_ms=1_000)
    whole = range_query("a", 0, 4 * MINUTE, MINUTE, source, look_back_ms=1_000)
    for step in range(5):
        for number in range(7):
            counted = [
                sum(
                    labels["class"] == str(number) and (step * MINUTE, 1.0) in points for labels, points in one.series()
                )
                for one in (whole, found)
            ]
            assert counted[1] == min(3, counted[0])
