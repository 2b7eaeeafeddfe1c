"""Completeness of what a query reads, against samples whose gaps are known."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from query_dsl.evaluation.completeness import measure_completeness, measure_promql
from query_dsl.promql import parse, query_store
from query_dsl.results.expected_points import MAX_LISTED, Completeness
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
    assert found.to_dict()["silent"] == [
        {"host": "a", "series": 3, "expected": 90, "present": 60, "since_ms": last_ms, "state": "", "acked_ms": 0}
    ]


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


# --- by host


@pytest.mark.parametrize("turn", range(20))
def test_expected_is_present_and_missing_of_every_host(turn: int) -> None:
    """Hosts with gaps, hosts that fell silent, and whole ones, against a loop over their minutes."""
    generator = random.Random(drawn("completeness by host") + turn)
    store, told = PlainStore(), dict[str, list[int]]()
    for number in range(generator.randint(1, 12)):
        host, until = f"h{number}", generator.choice([RANGE, RANGE, generator.randrange(3, RANGE - 2)])
        sums = told[host] = [0, 0, 0]
        for cpu in range(generator.randint(1, 3)):
            ended = generator.random() < 0.2
            kept = [m for m in range(-5, until) if m < 3 or m == until - 1 or generator.random() > 0.1]
            end = points([until])[0][0] if ended and until < RANGE else 0
            store.add("load", {"host": host, "cpu": str(cpu)}, points(kept), ended=end)
            sums[0] += 1
            sums[1] += until if end else RANGE
            sums[2] += sum(minute >= 0 for minute in kept)
    found = measured(store)
    assert found.expected == found.present + found.missing == sum(expected for _, expected, _ in told.values())
    assert found.present == sum(present for _, _, present in told.values())
    listed = {one.name: [one.series, one.expected, one.present] for one in (*found.silent, *found.lacking)}
    assert listed == {host: sums for host, sums in told.items() if sums[1] > sums[2]}
    assert found.silent_hosts == len(found.silent)
    assert found.is_lacking == (found.missing > 0)


def test_hosts_that_lack_points_are_listed_the_worst_first() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(set(range(-5, RANGE)) - {7}))
    store.add("load", {"host": "b"}, points(set(range(-5, RANGE)) - {7, 9}))
    store.add("load", {"host": "c"}, points(range(-5, RANGE)))
    found = measured(store)
    assert [(one.name, one.expected, one.present) for one in found.lacking] == [("b", 30, 28), ("a", 30, 29)]
    assert found.to_dict()["lacking"][0] == {"host": "b", "series": 1, "expected": 30, "present": 28}
    assert (found.missing, found.to_dict()["missing"], found.silent) == (3, 3, ())


# --- PromQL


def of_promql(store: PlainStore, query: str, minutes: int = RANGE, look_back: int = 5) -> Completeness:
    now_ms, budget, start_ms = END + SETTLE_MS, make_budget(DEFAULT_LIMITS, None), END - minutes * MINUTE
    return measure_promql(parse(query), store, now_ms, start_ms, END, budget, look_back_ms=look_back * MINUTE)


def with_gaps() -> PlainStore:
    """A host with two gaps, one that fell silent 10 minutes before the end, and one that is whole."""
    store = PlainStore().add("load", {"host": "a"}, points(set(range(-25, RANGE)) - {7, -3}))
    store.add("load", {"host": "b"}, points(range(-25, 20)))
    return store.add("load", {"host": "c"}, points(range(-25, RANGE)))


@pytest.mark.parametrize(
    ("query", "minutes", "expected", "present"),
    [
        ("load", RANGE, 3 * 35, 3 * 35 - 2 - 10),  # with the look-back of five minutes before the first step
        ("sum by (host) (rate(load[10m]))", 20, 3 * 30, 3 * 30 - 1 - 10),
        ("load offset 10m", 10, 3 * 15, 3 * 15 - 1),
        ('load{host="c"}', 0, 5, 5),  # at one time: the look-back
        ('load{host="b"}', 0, 5, 0),
        ("load[3m]", 0, 9, 6),
        ("max_over_time(load[5m:1m])", 0, 30, 20),
        ("load @ end()", RANGE, 15, 10),
        ("load / load", 10, 3 * 15, 3 * 15 - 10),
        ("load - load offset 10m", 0, 15 + 15, 25),
        ("vector(1) + time()", RANGE, 0, 0),
    ],
)
def test_a_query_in_promql_is_due_over_what_it_reads(query: str, minutes: int, expected: int, present: int) -> None:
    found = of_promql(with_gaps(), query, minutes)
    assert (found.expected, found.present) == (expected, present)


def test_a_look_back_of_the_request_counts() -> None:
    assert of_promql(with_gaps(), 'load{host="c"}', 0, look_back=2).expected == 2


def test_silent_hosts_of_a_query_at_one_time_have_the_time_of_their_last_sample() -> None:
    found = of_promql(with_gaps(), "sum(load)", 0)
    assert [(one.name, one.since_ms) for one in found.silent] == [("b", points([19])[0][0])]


def test_a_long_period_is_known_at_one_time_too() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(-30, RANGE, 5)))
    store.add("load", {"host": "b"}, points(range(-30, RANGE)))
    for look_back, expected in ((5, 1 + 5), (3, 3)):
        found = of_promql(store, "load", 0, look_back)
        assert (found.expected, found.present, found.silent) == (expected, expected, ())


def test_a_long_range_is_counted_in_buckets_of_the_level_that_holds_it() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(range(-300, RANGE)))
    found = of_promql(store, "load", 3 * 60)
    assert (found.expected, found.present) == (37, 37)


# --- remarks of answers in PromQL


def remarks(store: PlainStore, query: str = "load", minutes: int = RANGE) -> tuple[str, ...]:
    found = query_store(query, store, END + SETTLE_MS, start_ms=END - minutes * MINUTE, end_ms=END, step_ms=MINUTE)
    assert found.warnings == ()
    return found.infos


@pytest.mark.parametrize("query", ["load", "rate(load[5m])", "abs(load)", "load + load", "max_over_time(load[10m])"])
def test_an_answer_remarks_on_hosts_that_fell_silent(query: str) -> None:
    since = format_time(points([19])[0][0])
    told = [one for one in remarks(with_gaps(), query) if one.startswith("data is missing")]
    assert told == [f"data is missing: host b silent since {since}"]


def test_a_whole_answer_has_no_remark_and_gaps_alone_have_none() -> None:
    store = PlainStore().add("load", {"host": "a"}, points(set(range(-25, RANGE)) - {7}))
    store.add("load", {"host": "b"}, points(range(-30, RANGE, 5)))
    store.add("load", {"host": "c"}, points(range(-25, 20)), ended=points([20])[0][0])
    store.add("load", {"host": "d"}, points(range(-90, -60)))
    assert remarks(store) == ()


def test_a_silent_series_of_a_host_that_reports_is_remarked_as_a_series() -> None:
    store = PlainStore().add("load", {"host": "a", "cpu": "0"}, points(range(-25, RANGE)))
    store.add("load", {"host": "a", "cpu": "1"}, points(range(-25, 20)))
    assert remarks(store) == ("data is missing: 1 series silent",)


def test_a_short_answer_has_no_remark() -> None:
    assert remarks(with_gaps(), minutes=10) == ()
