"""Completeness of what a query reads, against samples whose gaps are known."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from query_dsl.evaluation.completeness import MAX_LISTED, Completeness, measure_completeness
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import DEFAULT_LIMITS, make_budget
from query_dsl.tree.times import format_time
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.seeds import drawn

END = 1_800_000_000_000 // (60 * MINUTE) * 60 * MINUTE
RANGE = 30
QUERY = f"fetch('load').range('{RANGE}m')"


def points(minutes: Iterable[int]) -> list[tuple[int, float]]:
    """Samples in the middle of minutes of the range; the last one is RANGE - 1, earlier ones are negative."""
    return [(END - (RANGE - minute) * MINUTE + MINUTE // 2, 1.0) for minute in minutes]


def measured(store: PlainStore, query: str = QUERY) -> Completeness:
    return measure_completeness(query, store, END + SETTLE_MS, make_budget(DEFAULT_LIMITS, None))


def test_all_samples_are_100_percent() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(-5, RANGE)))
    found = measured(store)
    assert (found.expected, found.present, found.series, found.share) == (RANGE, RANGE, 1, 1.0)
    assert str(found) == "100 % of expected points"


def test_a_missing_sample_counts_and_percent_are_rounded_down() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(set(range(-5, RANGE)) - {7}))
    found = measured(store)
    assert (found.expected, found.present) == (RANGE, RANGE - 1)
    assert str(found) == "96.66 % of expected points"


def test_a_host_without_samples_is_silent_and_its_series_are_due() -> None:
    store = PlainStore()
    for number in range(3):
        store.add("load", {"host": "a", "cpu": str(number)}, points(range(-5, 20)))
    store.add("load", {"host": "b"}, points(range(-5, RANGE)))
    found = measured(store)
    last_ms = points([19])[0][0]
    assert (found.expected, found.present) == (4 * RANGE, 3 * 20 + RANGE)
    assert [(one.name, one.series, one.since_ms) for one in found.silent] == [("a", 3, last_ms)]
    assert str(found).endswith(f"; host a silent since {format_time(last_ms)}")
    assert found.to_dict()["silent"] == [{"host": "a", "series": 3, "since_ms": last_ms}]


def test_several_silent_hosts_are_counted_the_longest_silence_first() -> None:
    store = PlainStore()
    for number in range(MAX_LISTED + 20):
        store.add("load", {"host": f"h{number:03}"}, points(range(-5, 10 if number % 2 else 12)))
    found = measured(store)
    assert (found.silent_hosts, len(found.silent)) == (MAX_LISTED + 20, MAX_LISTED)
    assert found.silent[0].name == "h001"
    assert f"{MAX_LISTED + 20} hosts silent, the first since {format_time(points([9])[0][0])}" in str(found)


def test_a_silent_series_of_a_host_that_reports_is_no_silent_host() -> None:
    store = PlainStore().add("load", {"host": "a", "cpu": "0"}, points(range(-5, RANGE)))
    store.add("load", {"host": "a", "cpu": "1"}, points(range(-5, 10)))
    store.add("load", {"cpu": "2"}, points(range(-5, 10)))
    found = measured(store)
    assert (found.silent, found.silent_series) == ((), 2)
    assert str(found).endswith("; 2 series silent")


def test_an_ended_series_is_not_due_after_its_end() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(-5, 10)), ended=points([10])[0][0])
    found = measured(store)
    assert (found.expected, found.present, found.silent) == (10, 10, ())


def test_a_new_series_is_due_from_its_first_sample_on() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(20, RANGE)))
    assert (measured(store).expected, measured(store).present) == (10, 10)


def test_a_series_is_due_once_in_its_own_period() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(0, RANGE, 5)))
    store.add("load", {"host": "b"}, points(range(RANGE)))
    found = measured(store)
    assert (found.expected, found.present, found.silent) == (RANGE // 5 + RANGE, RANGE // 5 + RANGE, ())


def test_a_host_that_was_silent_all_the_time_is_found() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(-20, -5)))
    store.add("load", {"host": "b"}, points(range(-5, RANGE)))
    found = measured(store)
    assert (found.expected, found.present) == (2 * RANGE, RANGE)
    assert [one.name for one in found.silent] == ["a"]


def test_each_fetch_of_a_query_counts_once_at_its_own_time() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(set(range(-20, RANGE)) - {3, -4}))
    twice = measured(store, f"(fetch('load') + fetch('load')).range('{RANGE}m')")
    assert (twice.expected, twice.present) == (RANGE, RANGE - 1)
    moved = measured(store, f"(fetch('load') - fetch('load').offset('10m')).range('{RANGE}m')")
    assert (moved.expected, moved.present) == (2 * RANGE, 2 * RANGE - 3)


def test_a_query_that_selects_nothing_says_so() -> None:
    found = measured(PlainStore().add("other", {}, points(range(5))))
    assert (str(found), found.share) == ("no series is selected", 1.0)


@pytest.mark.parametrize("turn", range(20))
def test_random_gaps_are_counted_as_a_loop_counts_them(turn: int) -> None:
    generator = random.Random(drawn("completeness") + turn)
    store, expected, present = PlainStore(), 0, 0
    for number in range(generator.randint(1, 8)):
        begin = generator.choice([-5, -5, generator.randrange(RANGE)])
        kept = [m for m in range(begin, RANGE) if m in (begin, begin + 1, begin + 2) or generator.random() > 0.1]
        store.add("load", {"host": f"h{number}"}, points(kept))
        expected += RANGE - max(0, begin)
        present += sum(minute >= 0 for minute in kept)
    found = measured(store)
    assert (found.expected, found.present) == (expected, present)
