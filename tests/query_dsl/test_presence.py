"""stale, last_seen and absent against loops over the samples themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import QueryError
from tests.query_dsl.plain_store import MINUTE, PlainStore, ask

END = 30 * MINUTE
TIMES = st.lists(st.integers(1, 40 * MINUTE), max_size=6, unique=True).map(sorted)


@settings(deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=3), st.integers(1, 25), st.integers(1, 10 * MINUTE))
def test_against_the_samples(series: list[list[int]], minutes: int, age: int) -> None:
    """Samples that came after the bucket take no part, even where the store knows that they came."""
    store = PlainStore()
    for i, times in enumerate(series):
        store.add("x", {"i": str(i)}, [(time, 1) for time in times])
    last = ask(f"fetch('x').last_seen().range(\"{minutes}m\")", store, END)
    stale = ask(f'fetch(\'x\').stale("{age}ms").range("{minutes}m")', store, END)
    assert len(last) == len(stale) == len(series)
    for i, times in enumerate(series):
        row = last.find(i=str(i))
        newest = [max((t for t in times if t <= end), default=None) for end in last.times]
        assert last.tolist(row) == newest
        assert stale.tolist(row) == [t is None or end - t > age for t, end in zip(newest, last.times, strict=True)]


def test_a_sample_from_long_before_what_the_level_holds() -> None:
    """The store knows when the newest sample of a series came, however long ago."""
    store = PlainStore(level_table=((MINUTE, 5),)).add("x", {}, [(MINUTE, 1)])
    assert ask("fetch('x').last_seen().range(\"2m\")", store, 500 * MINUTE).tolist(0) == [MINUTE, MINUTE]
    assert ask('fetch(\'x\').stale("1h").range("2m")', store, 500 * MINUTE).tolist(0) == [True, True]


def test_on_a_coarse_level() -> None:
    store = PlainStore().add("x", {}, [(61 * MINUTE + 7, 1), (119 * MINUTE, 2)])
    found = ask("fetch('x').last_seen().range(\"3h\")", store, 180 * MINUTE)
    assert found.grid.step_ms == 5 * MINUTE
    at = dict(zip(found.times, found.tolist(0), strict=True))
    assert at[60 * MINUTE] is None
    assert at[65 * MINUTE] == at[115 * MINUTE] == 61 * MINUTE + 7
    assert at[120 * MINUTE] == at[180 * MINUTE] == 119 * MINUTE


def test_names_labels_and_types_stay() -> None:
    store = PlainStore().add("x", {"h": "1"}, [(MINUTE, "text")]).add("x", {"h": "0"}, [(MINUTE, True)])
    assert ask("fetch('x').stale(\"5m\").at(60000)", store, MINUTE).series == ['x{h="0"}', 'x{h="1"}']


def test_filters_by_age() -> None:
    store = PlainStore().add("x", {"i": "0"}, [(26 * MINUTE, 1)]).add("x", {"i": "1"}, [(29 * MINUTE + 1, 1)])
    keep = {
        ('"fresh"', "1m"): ["1"],
        ('"fresh"', "4m"): ["0", "1"],
        ('"stale"', "1m"): ["0"],
        ('"stale"', "4m"): [],
        ('"stale"', "239999ms"): ["0"],
    }
    for (name, age), expected in keep.items():
        found = ask(f'fetch(\'x\').filter({name}, "{age}").range("10m")', store, END)
        assert [labels["i"] for labels in found.labels] == expected
        sorted_first = f'fetch(\'x\').transform("sort").filter({name}, "{age}").range("10m")'
        assert [labels["i"] for labels in ask(sorted_first, store, END).labels] == expected


def test_absent_with_a_thousand_label_sets() -> None:
    store = PlainStore()
    for i in range(0, 300, 3):
        store.add("x", {"h": str(i), "dc": "a"}, [(END, 1)])
    sets = ", ".join(f"'h=\"{i}\"'" for i in range(300))
    found = ask(f"absent('x', expected=[{sets}]).range(\"1m\")", store, END)
    assert len(found) == 300
    assert [labels["h"] for labels, gone in zip(found.labels, found.latest(), strict=True) if not gone] == sorted(
        str(i) for i in range(0, 300, 3)
    )


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("absent('x', expected=['h=\"1\"', 'h=\"1\"'])", "is expected twice"),
        ("absent('x{h=~\"a.*\"}', expected=['h=\"b\"'])", 'the selector has h=~"a.*"'),
        ("absent('x', expected=['h=~\"b\"'])", "takes labels with ="),
        ("absent('x', expected='h=\"1\"')", "takes a list"),
        ("fetch('x').sum(by=[]).last_seen()", "directly after fetch"),
        ('fetch(\'x\').map(max, "5m").stale("5m")', "directly after fetch"),
        ("samples('x').stale(\"5m\")", "stale takes series on a grid"),
        ("fetch('y').last_seen()", "no variable is named 'y'"),
        ("fetch('x').stale()", "age"),
    ],
)
def test_errors(query: str, error: str) -> None:
    store = PlainStore().add("x", {"h": "1"}, [(MINUTE, 1)])
    with pytest.raises(QueryError) as caught:
        ask(f'({query}).range("5m")', store, END)
    assert error in str(caught.value)
