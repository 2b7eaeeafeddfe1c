"""Random queries, each asked of memory (two shards that push down) and of the history over lists of the same samples:
equal series, types, values, errors. test_two_engines.py asks a real table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.select import SelectError
from artimon.model.values import Kind
from query_dsl import Matrix, QueryError, evaluate, parse
from tests.history.engine_world import some_series
from tests.query_dsl import asking
from tests.query_dsl.past_lists import PastLists
from tests.query_dsl.test_pushdown import HOUR, MINUTE, NOW, T, Told, fed_shards

RENAMED = {
    "m.*": "v.*", "m.a": "v0", "m.b": "v1", 'host=~"h[0-4]"': 'k=~"[0-9]"', "'host'": "'k'", "'dc', ": "", "dc": "rack",
}  # fmt: skip
"""Names in the queries of asking.py and the names of the series here."""
TIMES = [
    ".range('10m')", ".range('20m')", ".range('2h')", ".at('now')",
    f".between({T - 12 * MINUTE}, {T - 3 * MINUTE})", f".between({T - 30 * MINUTE}, {T - 20 * MINUTE})",
]  # fmt: skip


def outcome(text: str, store: Any) -> Matrix | str:
    try:
        return evaluate(parse(text), store, NOW)
    except (QueryError, SelectError) as problem:
        return f"refused: {problem}"


def differences(text: str, memory: Any, past: Any) -> list[Any]:
    """Differences of the two answers, the memory's first."""
    a, b = outcome(text, memory), outcome(text, past)
    if isinstance(a, str) or isinstance(b, str):
        return [] if isinstance(a, str) and isinstance(b, str) else [a, b]
    if (a.series, a.times, a.types.tolist()) != (b.series, b.times, b.types.tolist()):
        return [a.to_dict(), b.to_dict()]
    return [
        (name, time, x, y)
        for i, name in enumerate(a.series)
        for time, x, y in zip(a.times, a.tolist(i), b.tolist(i), strict=True)
        if not asking.agree(x, y)
    ]


def check(told: list[Told], asked: list[str], when: str) -> None:
    memory = fed_shards(told, 2)
    past = PastLists(told, memory.levels())
    for text in asked:
        for name, here in RENAMED.items():
            text = text.replace(name, here)
        assert not (found := differences(text + when, memory, past)), (text + when, found[:5])


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.lists(asking.questions(), min_size=4, max_size=8), st.sampled_from(TIMES))
def test_memory_and_history_agree(seed: int, asked: list[str], when: str) -> None:
    check(some_series(seed, 12), asked, when)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.lists(asking.questions(), min_size=4, max_size=8), st.sampled_from(TIMES))
def test_memory_and_history_agree_at_length(seed: int, asked: list[str], when: str) -> None:
    check(some_series(seed, 12), asked, when)


def two_sources(first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]) -> list[Told]:
    """One counter of two sources; (minutes before the end, birth so told too, value)."""
    return [
        Told("c", (), Kind.COUNTER, tuple((T - at * MINUTE, T - born * MINUTE, value) for at, born, value in samples),
             f"s{i}", i)
        for i, samples in enumerate((first, second))
    ]  # fmt: skip


def values(told: list[Told], text: str) -> list[Any]:
    """Answer for the one series; equal in both engines."""
    memory = fed_shards(told, 2)
    assert not differences(text, memory, PastLists(told, memory.levels()))
    found = outcome(text, memory)
    assert isinstance(found, Matrix), found
    return found.tolist(0)


def test_lives_of_two_sources_that_overlap_are_one() -> None:
    """The second source begins while the first goes on: no reset, values as they come."""
    told = two_sources([(9, 60, 10), (7, 60, 20), (5, 60, 30)], [(8, 8, 12), (6, 8, 25), (4, 8, 31)])
    assert values(told, "fetch('c').increase().range('6m')") == [5, 1, None, None, None, None]
    assert values(told, "fetch('c').increase('6m').at('now-3m')") == [31 - 10]


def test_a_source_that_takes_over_begins_anew() -> None:
    """The first was over: what the second has counted since its birth is new."""
    told = two_sources([(9, 60, 10), (8, 60, 20)], [(6, 7, 5), (5, 7, 9)])
    assert values(told, "fetch('c').increase().range('8m')") == [None, 5, 4, None, None, None, None, None]


def test_a_source_that_takes_over_and_is_older_begins_anew_too() -> None:
    told = two_sources([(9, 60, 10), (8, 60, 20)], [(6, 90, 5), (5, 90, 9)])
    assert values(told, "fetch('c').increase().range('8m')") == [None, 5, 4, None, None, None, None, None]


def test_a_process_that_was_born_before_the_one_it_follows_begins_anew_too() -> None:
    """One source: its clock went back, or the older process was delayed."""
    told = two_sources([(9, 60, 10), (8, 60, 20), (6, 90, 5), (5, 90, 9)], [])[:1]
    assert values(told, "fetch('c').increase().range('8m')") == [None, 5, 4, None, None, None, None, None]
    assert values(told, "fetch('c').increase().sum(by=[]).range('8m')") == [None, 5, 4, None, None, None, None, None]
    assert values(told, "fetch('c').irate('4m').at('now-6m')") == [5 / 120]
    assert values(told, "fetch('c').resets('4m').at('now-5m')") == [1]


def test_an_integer_that_became_a_double_is_one_at_any_time() -> None:
    told = [Told("x", (), Kind.GAUGE, ((T - 9 * MINUTE, 0, 4), (T - 3 * MINUTE, 0, 4.5)), "s0", 0)]
    memory = fed_shards(told, 2)
    for store in (memory, PastLists(told, memory.levels())):
        found = evaluate(parse("fetch('x').offset('5m').range('5m')"), store, NOW)
        assert [row["type"] for row in found.to_dict()["series"]] == ["DOUBLE"]
        assert found.tolist(0) == [4.0, None, None, None, None]


def test_a_series_that_ended_and_went_on_did_not_end() -> None:
    told = [Told("x", (), Kind.GAUGE, ((T - 9 * MINUTE, 0, 4), (T - 8 * MINUTE, 0, None), (T - 3 * MINUTE, 9, 5)),
                 "s0", 0)]  # fmt: skip
    assert values(told, "fetch('x').map('last', '4m').offset('5m').range('5m')") == [4, 4, 4, 4, None]


def test_last_seen_reaches_before_the_range() -> None:
    """Series silent for hours, intermittent series, and unknown series."""
    early = ((T - 70 * HOUR, 0, 1), (T - 9 * HOUR, 0, 2))
    told = [
        Told("x", (("k", "old"),), Kind.GAUGE, early, "s0", 0),
        Told("x", (("k", "new"),), Kind.GAUGE, ((T - 4 * MINUTE, 0, 3),), "s0", 0),
        Told("x", (("k", "both"),), Kind.GAUGE, (*early, (T - 2 * MINUTE, 0, 3)), "s0", 1),
    ]
    memory = fed_shards(told, 2)
    past = PastLists(told, memory.levels())
    for text in ("last_seen()", "stale('3m')", "stale('10h')", "stale('8h')"):
        for time in (".range('6m')", ".at('now-5m')", ".range('5h')"):
            assert not differences(f"fetch('x').{text}{time}", memory, past), text + time
    found = evaluate(parse("fetch('x').last_seen().range('6m')"), past, NOW)
    assert dict(list(found))['x{k="old"}'] == [T - 9 * HOUR] * 6
    assert dict(list(found))['x{k="new"}'] == [None, *[T - 4 * MINUTE] * 5]


def test_a_series_that_ended_is_missing_without_look_back() -> None:
    told = [Told("x", (), Kind.GAUGE, ((T - 9 * MINUTE, 0, 4), (T - 8 * MINUTE, 0, None)), "s0", 0)]
    assert values(told, "fetch('x').map('last', '4m').offset('5m').range('5m')") == [4, None, None, None, None]
