"""A query that selects nothing names the failing matcher, similar names, and the time of the last sample: the
memory store of several shards, the history, both, and lists of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.model.select import Matcher
from artimon.model.values import Kind
from query_dsl import NothingSelected, evaluate, offline, parse
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.history.sample_query import HistoryError
from tests.query_dsl.past_lists import PastLists
from tests.query_dsl.plain_store import PlainStore
from tests.query_dsl.test_pushdown import HOUR, MINUTE, NOW, T, Told, fed_shards


def one_sample(name: str, at: int, **labels: str) -> Told:
    return Told(
        name,
        tuple(sorted(labels.items())),
        Kind.GAUGE,
        ((at, 0, 1),),
        "s0" if labels["host"] == "h1" else "s1",
        len(name),
    )


SERIES = [
    one_sample("rack.temp", T - MINUTE, host="h1", rack="r1"),
    one_sample("rack.temp", T - 2 * MINUTE, host="h22", rack="r2"),
    one_sample("rack.door", T - MINUTE, host="h1", rack="r1"),
    one_sample("old.load", T - 9 * HOUR, host="h1"),
    one_sample("old.load", T - 8 * HOUR, host="h22"),
]


def memory() -> Any:
    return fed_shards(SERIES, 3)


def past() -> Any:
    return PastLists(SERIES, memory().levels())


def lists() -> Any:
    return offline({f"{one.name}{{{','.join(f'{k}={v!r}' for k, v in one.labels)}}}": [one.samples[0][::2]]
                    for one in SERIES})  # fmt: skip


def both() -> Any:
    return AutoStore(memory(), past, ManualClock(NOW))


STORES = [memory, past, lists, both]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("selector", "blamed"),
    [
        ("rack.tmp", "no variable is named 'rack.tmp'; near: rack.temp"),
        ("rak.*", "no variable's name begins with 'rak.'; near: "),
        ("rack.temp{rak='r1'}", "no series has the label 'rak'; near: rack"),
        ("rack.temp{host='h33'}", "no series fits host=\"h33\"; there are: h1, h22"),
        ("rack.temp{host=~'x.*'}", 'no series fits host=~"x.*"'),
        ("rack.temp{host='h1',rack='r2'}",
         "series fit __name__=\"rack.temp\", host=\"h1\", but none of them rack=\"r2\""),
        ("rack.door{host='h22'}", "series fit __name__=\"rack.door\", but none of them host=\"h22\""),
    ],
)  # fmt: skip
def test_the_matcher_to_blame(store: Callable[[], Any], selector: str, blamed: str) -> None:
    with pytest.raises(NothingSelected) as caught:
        evaluate(parse(f'fetch("{selector}").sum(by=[]).range("10m")'), store(), NOW)
    assert blamed in caught.value.message
    assert "^" in str(caught.value)


@pytest.mark.parametrize("store", STORES)
def test_the_newest_sample_before_the_range_is_named(store: Callable[[], Any]) -> None:
    """Series fit, but none has a sample in the range."""
    found = evaluate(parse("fetch('old.load').range('10m')"), store(), NOW)
    assert len(found) == 0
    assert any(
        "none of 2 series has a sample in the range; the newest sample of all is of 2027-01-15T00:00:00Z" in note
        for note in found.notes
    ), found.notes


@pytest.mark.parametrize("store", STORES)
def test_what_some_lack_is_said(store: Callable[[], Any]) -> None:
    found = evaluate(parse("fetch('rack.temp').at('now')"), store(), NOW + MINUTE)
    assert len(found) == 0
    assert any("none of 2 series has a sample in the range; the newest" in note for note in found.notes), found.notes


def forgetful() -> Any:
    return AutoStore(fed_shards(SERIES[:3], 2), past, ManualClock(NOW))


def test_series_known_only_to_the_history_are_named() -> None:
    with pytest.raises(NothingSelected) as caught:
        evaluate(parse("fetch('old.load').range('10m')"), forgetful(), NOW)
    assert 'only the history knows such series as old.load{host="h1"}, whose newest sample is of ' in str(caught.value)
    assert "2027-01-15T00:00:00Z" in str(caught.value)


def test_names_and_labels_of_both_engines() -> None:
    store = forgetful()
    assert store.names() == ["old.load", "rack.door", "rack.temp"]
    assert store.label_values("host") == ["h1", "h22"]
    found = store.find((Matcher("host", "=", "h1"),))
    assert [one.name for one in found] == ["old.load", "rack.door", "rack.temp"]


def test_a_history_that_does_not_answer_changes_no_message() -> None:
    def broken() -> Any:
        raise HistoryError("HDFS does not answer")

    store = AutoStore(fed_shards(SERIES, 2), broken, ManualClock(NOW))
    with pytest.raises(NothingSelected, match=r"no variable is named 'rack\.tmp'; near: rack\.temp"):
        evaluate(parse("fetch('rack.tmp').range('10m')"), store, NOW)
    found = evaluate(parse("fetch('old.load').range('10m')"), store, NOW)
    assert any("newest sample of all is of 2027-01-15T00:00:00Z" in note for note in found.notes)


def test_only_the_bucket_of_now_is_not_over_yet() -> None:
    """Samples that came after a range in the past lie in buckets that are over."""
    store = PlainStore().add("x", {}, [(NOW - MINUTE, 1)]).add("now", {}, [(NOW - 1_000, 1)])
    past = evaluate(parse(f"fetch('x').between({T - 30 * MINUTE}, {T - 20 * MINUTE})"), store, NOW)
    assert any("newest sample of all is of" in note and "not over" not in note for note in past.notes), past.notes
    open_ = evaluate(parse("fetch('now').at('now')"), store, NOW)
    assert any("and is not over yet" in note for note in open_.notes), open_.notes
    shifted = evaluate(parse("fetch('now').offset('20m').range('2m')"), store, NOW)
    assert not any("not over" in note for note in shifted.notes), shifted.notes
