"""Grids, levels, edges, requests to the store, and notes of the answer."""

from __future__ import annotations

import pytest

from artimon.model.select import Buckets, SelectError, SelectRequest
from artimon.model.values import Kind
from query_dsl import Matrix, NothingSelected, QueryError, absent, apply, evaluate, fetch, offline, parse
from query_dsl.stores.levels import FINEST_SPARE_ROWS, SETTLE_MS
from tests.query_dsl.plain_store import MINUTE, PlainSeries, PlainStore, Sample

HOUR = 60 * MINUTE
T = 1_700_000_000_000 // HOUR * HOUR
NOW = T + SETTLE_MS


def ticking(minutes: int = 4_400, name: str = "c", **labels: str) -> PlainStore:
    """A counter that grows by 1 half-way through each minute, born a minute before its first sample."""
    first = T - minutes * MINUTE
    points = [(first + i * MINUTE - 30_000, i) for i in range(1, minutes + 1)]
    return PlainStore().add(name, labels, points, Kind.COUNTER, birth=first - MINUTE)


STORE = ticking()


def only(minutes: int) -> PlainStore:
    """The same samples in a store of one long level."""
    return PlainStore(STORE.series, ((minutes * MINUTE, 10_000),))


def asked(text: str, store: PlainStore = STORE, now: int = NOW) -> Matrix:
    return evaluate(parse(text), store, now)


@pytest.mark.parametrize(
    ("text", "step", "n"),
    [
        ("fetch('c').range('600s')", MINUTE, 10),
        ("fetch('c').range('601s')", MINUTE, 11),
        ("fetch('c').range('1h')", MINUTE, 60),
        ("fetch('c').range('61m')", 5 * MINUTE, 13),
        ("fetch('c').range('4h')", 5 * MINUTE, 48),
        ("fetch('c').range('1d')", 15 * MINUTE, 96),
        ("fetch('c').range('3d')", HOUR, 72),
        ("fetch('c').at('now')", MINUTE, 1),
        ("fetch('c').at('now-2h')", 5 * MINUTE, 1),
        ("fetch('c').offset('2h').range('10m')", 5 * MINUTE, 2),
        ("fetch('c').between('now-1h', 'now')", MINUTE, 60),
        ("fetch('c').bucketize(max, '10m').range('30m')", 10 * MINUTE, 3),
        ("fetch('c').bucketize(max, '1h').range('3h')", HOUR, 3),
    ],
)
def test_the_finest_level_that_covers_the_range(text: str, step: int, n: int) -> None:
    matrix = asked(text)
    assert (matrix.grid.step_ms, matrix.grid.n, matrix.complete) == (step, n, True)
    assert matrix.present.all()


@pytest.mark.parametrize(
    ("now", "end"),
    [(T, T - MINUTE), (T + 14_999, T - MINUTE), (T + 15_000, T), (T + 74_999, T), (T + 75_000, T + MINUTE)],
)
def test_the_open_bucket_never_shows(now: int, end: int) -> None:
    """The grid ends at the newest multiple of the step that is settled."""
    assert asked("fetch('c').range('5m')", now=now).grid.end_ms == end


def test_buckets_are_named_by_their_end_and_closed_there() -> None:
    store = PlainStore().add("x", {}, [(T - MINUTE, 1), (T - MINUTE + 1, 2), (T, 3), (T + 1, 4)])
    assert asked("fetch('x').map(sum).range('2m')", store).tolist(0) == [1.0, 5.0]


@pytest.mark.parametrize("statistic", ["last", "min", "max", "sum", "mean", "count", "increase", "delta", "rate"])
@pytest.mark.parametrize("step", [5, 15, 60])
def test_equal_at_every_level(statistic: str, step: int) -> None:
    """The same window, read from 1-minute buckets and from coarser ones."""
    at = T - HOUR
    coarse = evaluate(fetch("c").map(statistic, "1h").between(at - HOUR, at), only(step), NOW)
    fine = evaluate(fetch("c").map(statistic, "1h").at(at), only(1), NOW)
    assert coarse.latest() == fine.latest()
    assert fine.latest() != [None]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("fetch('c')", {"last", "count"}),
        ("fetch('c').map(count, '5m')", {"count"}),
        ("fetch('c').map(mean, '5m')", {"sum", "count"}),
        ("fetch('c').map(max, '5m')", {"max", "count"}),
        ("fetch('c').rate('5m')", {"last", "last_time", "min", "count"}),
    ],
)
def test_only_needed_statistics_are_requested(text: str, wanted: set[str]) -> None:
    store = ticking(100)
    asked(text, store)
    assert [set(r.statistics) for r in store.requests] == [wanted]


def test_one_request_for_equal_fetches() -> None:
    store = ticking(100)
    asked("fetch('c') - fetch('c')", store)
    assert len(store.requests) == 1


@pytest.mark.parametrize("function", ["mean", "count", "increase", "median", "changes"])
def test_a_window_that_begins_before_what_memory_holds_is_missing(function: str) -> None:
    """For every function alike; `partial_windows` shows what there is. The level has rows for 17 minutes more."""
    text = f"fetch('c').map('{function}', '30m').range('1h')"
    store = PlainStore(STORE.series, ((MINUTE, 60),))
    found = evaluate(parse(text), store, NOW)
    held = 60 - (30 - FINEST_SPARE_ROWS - 1)
    assert found.present.tolist() == [[False] * (60 - held) + [True] * held]
    assert f"the window of {60 - held} points begins before what memory holds: NA" in " ".join(found.notes)
    assert not found.complete
    partly = evaluate(parse(text), store, NOW, partial_windows=True)
    assert partly.present.all()
    assert partly.tolist(0)[60 - held :] == found.tolist(0)[60 - held :]
    assert "begins before what memory holds: partial" in " ".join(partly.notes)


def test_the_level_holds_range_windows_and_offset() -> None:
    """A mean of a day at one time needs the level of a day, an increase of six hours that of a day, too."""
    for text, step in (
        ("fetch('c').map('mean', '1d').at('now')", 15 * MINUTE),
        ("fetch('c').increase('6h').at('now')", 15 * MINUTE),
        ("fetch('c').increase('3h').at('now')", 5 * MINUTE),
        ("fetch('c').increase('30m').range('1h')", 5 * MINUTE),
        ("fetch('c').increase('30m').map('max', '3h').at('now')", 5 * MINUTE),
        ("fetch('c').increase('30m').map('max', '4h').at('now')", 15 * MINUTE),
        ("fetch('c').increase('6h').offset('2d').at('now')", HOUR),
    ):
        found = asked(text)
        assert (found.grid.step_ms, found.complete) == (step, True), text


def test_windows_of_different_lengths_use_the_level_that_holds_them() -> None:
    """On one output grid; a short window reads a finer level at its ends, not a longer window."""
    found = asked("apply('sub', fetch('c').increase('6h'), fetch('c').increase('5m')).at('now')")
    assert (found.grid.step_ms, found.latest()) == (15 * MINUTE, [355])
    assert found.notes == ()


def test_a_window_of_ten_minutes_over_the_whole_hour_is_whole() -> None:
    """The spare rows hold the window and its predecessor."""
    matrix = asked("fetch('c').increase('10m').range('1h')")
    assert matrix.tolist(0) == [10] * 60
    assert matrix.notes == ()


def test_a_range_beyond_memory_is_answered_as_far_as_it_goes() -> None:
    matrix = asked("fetch('c').range('5d')")
    assert not matrix.complete
    assert matrix.grid.n == 120
    assert any("(61 %)" in note for note in matrix.notes), matrix.notes
    with pytest.raises(QueryError, match="memory holds buckets of 1h from"):
        asked("fetch('c').at('now-30d')")


def test_a_grid_that_was_moved_is_said() -> None:
    assert "the bucket that ends at" in asked(f"fetch('c').at({T - 1})").notes[0]
    assert "later buckets are still open" in asked(f"fetch('c').between({T - HOUR}, {T + HOUR})").notes[0]
    assert "no range given" in asked("fetch('c')").notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fetch('c').offset('90s')", "offset 1m30s is not a multiple"),
        ("fetch('c').bucketize(max, '90s')", "not a multiple of a level's step: 1m, 5m, 15m, 1h"),
        ("fetch('c').bucketize(max, '10m') - fetch('c')", "mixed grids: fetch reads levels of 1m, 5m, 15m, 1h"),
        ("fetch('c').bucketize(max, '5m') - fetch('c').bucketize(max, '10m')", "two grids in one query"),
        ("fetch('c').range('100d')", "no error: just more than memory"),
        ("fetch('c').range('5000w')", "use at most 11000"),
        ("fetch('c').between('now', 'now-1h')", "does not lie before the end"),
        ("fetch('c').at('now') - fetch('c').range('5m')", "two grids in one query: .at(now) and .range(5m)"),
        ("samples('c')", "raw samples, which have no grid"),
        ("1 + 2", "the query is a plain value"),
        ("(1 + 2).abs() + fetch('c')", "abs works on series, not on the plain value 3"),
        ("fetch('c') + 9223372036854775808", "is not a 64-bit integer"),
        ("fetch('c') + 'a'", "cannot take the text 'a'"),
        ("fetch('c') & fetch('c')", "& needs BOOLEAN on both sides"),
        ("~fetch('c')", "~ needs BOOLEAN"),
        ("apply(add, fetch('c'), 1, on=[])", "one operand is a plain value"),
        ("fetch('c').mean(by=['host'])", "no selected series has the label 'host'"),
        ("fetch('c').sum(by=[], nulls='error').between('now-80h', 'now')", "has no value at"),
        ("fetch('c').map(mean, '5m', nulls='error').between('now-80h', 'now')", "has an empty bucket"),
        ("fetch('d')", "no variable is named 'd'"),
        ("fetch('d.*')", "no variable's name begins with 'd.'"),
        ("fetch('c{host=\"a\"}')", "no series has the label 'host'"),
    ],
)
def test_errors_say_what_and_where(text: str, message: str) -> None:
    if message.startswith("no error"):
        assert asked(text).grid.n == 2_400
        return
    with pytest.raises(QueryError) as caught:
        asked(text)
    assert message in str(caught.value)


def test_an_error_of_evaluation_points_into_the_text() -> None:
    with pytest.raises(QueryError) as caught:
        asked("1 + fetch('c').mean(by=['hots'])")
    assert str(caught.value).splitlines()[-1].split() == ["^" * len("mean(by=['hots'])")]
    assert caught.value.position == len("1 + fetch('c').")
    with pytest.raises(QueryError) as built:
        evaluate(1 + fetch("c").mean(by=["hots"]), STORE, NOW)
    assert "^" not in str(built.value)


def test_the_combination_that_selects_nothing_is_named() -> None:
    store = ticking(50, host="a", dc="x").add("c", {"host": "b", "dc": "y"}, [(T, 1)])
    with pytest.raises(NothingSelected) as caught:
        asked("""fetch('c{host="a",dc="y"}')""", store)
    assert """series fit __name__="c", host="a", but none of them dc="y\"""" in str(caught.value)


def test_series_without_samples_in_the_range_are_left_out_and_said() -> None:
    store = ticking(50, host="a").add("c", {"host": "b"}, [(T - 5 * HOUR, 1)])
    matrix = asked("fetch('c').range('10m')", store)
    assert matrix.series == ['c{host="a"}']
    assert "c: 1 of 2 series have no sample in the range" in matrix.notes
    quiet = asked("""fetch('c{host="b"}').range('10m')""", store)
    assert len(quiet) == 0
    assert "the newest sample of all is of" in quiet.notes[0]
    assert "0 series" in repr(quiet)
    assert quiet.to_pandas().shape == (10, 0)
    assert len(asked("""fetch('c{host="b"}').mean(by=['host']).range('10m')""", store)) == 0


def test_a_sample_younger_than_the_range_is_said_to_be_in_the_open_bucket() -> None:
    store = ticking(0).add("c", {}, [(NOW - 1_000, 1)])
    notes = evaluate(parse("fetch('c').range('3d')"), store, NOW).notes
    assert "in the bucket of 1h that ends at" in notes[0]
    assert "is not over yet" in notes[0]


def test_notes_of_the_store_reach_the_answer() -> None:
    store = ticking(50)
    store.notes, store.partial = ("shard 1 did not answer",), True
    matrix = asked("fetch('c').rate('5m').sum(by=[])", store)
    assert matrix.partial
    assert "shard 1 did not answer" in matrix.notes


class _Gone(PlainStore):
    def select(self, request: SelectRequest) -> Buckets:
        error = SelectError("nobody answers")
        error.of_query = False
        raise error


def test_a_store_that_does_not_answer_is_no_mistake_in_the_text() -> None:
    with pytest.raises(QueryError) as caught:
        evaluate(parse("fetch('c')"), _Gone([PlainSeries("c", {}, [])]), NOW)
    assert str(caught.value) == "nobody answers"


class _Full(PlainStore):
    def select(self, request: SelectRequest) -> Buckets:
        raise SelectError("200000 series fit: at most 100000")


def test_a_refusal_of_the_store_is_a_query_error() -> None:
    with pytest.raises(QueryError, match="200000 series fit"):
        evaluate(parse("fetch('c')"), _Full([PlainSeries("c", {}, [])]), NOW)


def test_a_store_without_levels_is_said() -> None:
    with pytest.raises(QueryError, match="is a shard running"):
        evaluate(parse("fetch('c')"), PlainStore(level_table=()), NOW)


def test_a_process_and_its_successor_are_never_counted_at_once() -> None:
    """The old one ended within the bucket in which the new one began."""
    store = PlainStore().add(
        "g", {"instance": "0"}, [(T - 2 * MINUTE, 5), (T - 50_000, 5)], Kind.GAUGE, ended=T - 40_000
    )
    store.add("g", {"instance": "1"}, [(T - 20_000, 7)], Kind.GAUGE)
    assert asked("fetch('g').sum(by=[]).range('3m')", store).tolist(0) == [5.0, None, 7.0]


def test_increase_over_restarts_is_exact() -> None:
    """Four workers, five restarts each, 1 a second: 3,600 s times 4."""
    store = PlainStore()
    for worker in range(4):
        samples: list[Sample] = []
        for life in range(6):
            birth = T - HOUR + life * 10 * MINUTE
            samples += [Sample(birth + s * 1_000, s, birth) for s in range(37, 599, 37)]
            samples.append(Sample(birth + 599_000 + worker, 600, birth))
        store.add("w", {"instance": str(worker)}, samples, Kind.COUNTER)
    whole = asked("fetch('w').increase('1h').sum(by=[]).at('now')", store)
    assert whole.latest() == [4 * 6 * 600.0]
    parts = asked("fetch('w').increase().sum(by=[]).bucketize(sum, '1h').at('now')", store)
    assert parts.latest() == [4 * 6 * 600.0]


def test_500_terms_evaluate_without_recursion() -> None:
    assert asked("fetch('c') * 0" + " + 1" * 480).tolist(0) == [480.0] * 10


def test_absent_of_an_ended_series_is_true() -> None:
    store = PlainStore().add("up", {}, [(T - 3 * MINUTE, 1), (T - 2 * MINUTE, 1)], ended=T - 90_000)
    assert evaluate(absent("up").range("4m"), store, NOW).tolist(0) == [False, False, True, True]


def test_apply_pairs_thousands_by_label() -> None:
    store = PlainStore()
    for i in range(2_000):
        store.add("size", {"volume": str(i)}, [(T, 100)])
        store.add("used", {"volume": str(1_999 - i)}, [(T, 1_999 - i)])
    free = evaluate(apply("sub", fetch("size"), fetch("used"), on=["volume"]).at("now"), store, NOW)
    assert len(free) == 2_000
    assert all(v == 100 - int(labels["volume"]) for v, labels in zip(free.latest(), free.labels, strict=True))


THIRTEEN = [(T - HOUR + minute * MINUTE, 1) for minute in range(-5, 40)]


@pytest.mark.parametrize(
    ("start", "end", "step", "told"),
    [
        (0, 13, "5m", "no bucket of 5m ends at the end .*: use .*T.*:10:00Z or .*:15:00Z"),
        (0.5, 13, "1m", "no bucket of 1m ends at the start .*:00:30Z: use .*:00:00Z or .*:01:00Z"),
        (0, 12.5, "1m", "no bucket of 1m ends at the end .*:12:30Z"),
    ],
)
def test_fixed_ends_of_between_are_ends_of_buckets(start: float, end: float, step: str, told: str) -> None:
    """13 samples lie in the interval; buckets of 5 minutes would hold 15."""
    text = (
        f"fetch('x').bucketize('sum', '{step}').between({T - HOUR + start * MINUTE:.0f}, {T - HOUR + end * MINUTE:.0f})"
    )
    for store in (PlainStore().add("x", {}, THIRTEEN), offline({"x": THIRTEEN})):
        with pytest.raises(QueryError, match=told):
            evaluate(parse(text), store, T + SETTLE_MS)
        if step == "5m":
            with pytest.raises(QueryError, match=told):
                offline({"x": THIRTEEN}).query(text.replace("fetch", "samples"), at=T)


def test_buckets_of_between_hold_what_lies_in_it() -> None:
    text = f"fetch('x').bucketize('sum', '13m').between({T - HOUR}, {T - 47 * MINUTE})"
    for store in (PlainStore().add("x", {}, THIRTEEN), offline({"x": THIRTEEN})):
        assert evaluate(parse(text), store, T + SETTLE_MS).tolist(0) == [13]


def test_an_open_end_of_between_leaves_whole_buckets() -> None:
    """Counted from the start, which is fixed; relative ends move together."""
    store = offline({"x": THIRTEEN})
    now = T - 47 * MINUTE + SETTLE_MS
    open_ = evaluate(parse(f"fetch('x').bucketize('sum', '5m').between({T - HOUR}, {T})"), store, now)
    assert (open_.grid.end_ms, open_.tolist(0)) == (T - 50 * MINUTE, [5, 5])
    assert "later buckets are still open" in open_.notes[0]
    relative = evaluate(parse("fetch('x').between('now-10m', 'now-5m')"), store, now)
    assert (relative.grid.n, relative.tolist(0)) == (5, [1] * 5)
    ends = evaluate(parse(f"fetch('x').bucketize('sum', '5m').between({T - HOUR}, 'now-47m')"), store, T)
    assert (ends.grid.start_ms, ends.tolist(0)) == (T - HOUR, [5, 5])  # 'now-47m' is the end of a bucket
