"""Raw samples: their forms, their transforms against plain loops, and buckets equal to those of a fetch."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.values import Kind, Value
from query_dsl import Matrix, QueryError, offline, parse
from query_dsl.evaluation.evaluator import answer
from query_dsl.functions.tables import MAPPERS
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import DOUBLE, INTEGER, STRING, SeriesKey
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import LimitExceeded, Limits
from tests.query_dsl.plain_store import MINUTE, PlainStore, Sample, by_series

Points = list[tuple[int, Value]]
POINTS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=14).map(
    lambda points: sorted(points)
)
NUMBERS = [name for name, mapper in MAPPERS.items() if mapper.case.given and not mapper.grid_only]


def answered(text: str, store: PlainStore, limits: Limits | None = None) -> Any:
    return answer(parse(f"{text}.between(0, 100)"), store, 100 + SETTLE_MS, limits=limits)


def of(points: Points) -> PlainStore:
    return PlainStore(level_table=((1, 10_000),)).add("x", {}, points)


# --- the form ---


def three() -> RawSeries:
    keys = [SeriesKey("x", (("i", "2"),)), SeriesKey("x", (("i", "1"),)), SeriesKey("y", ())]
    times = [[30, 10, 20], [5, 5], []]
    return RawSeries.of(keys, [INTEGER, STRING, DOUBLE], times, [[3, 2**60 + 1, 2], [0, 1], []], ("p", "q"))


def test_series_are_in_order_and_samples_by_time() -> None:
    found = three()
    assert by_series(found) == {
        'x{i="1"}': [(5, "p"), (5, "q")],
        'x{i="2"}': [(10, 2**60 + 1), (20, 2), (30, 3)],
        "y": [],
    }
    assert found.find(i="2") == 1
    assert found.samples == 5
    with pytest.raises(LookupError, match="2 series have"):
        found.find(__name__="x")
    with pytest.raises(ValueError, match="read-only"):
        found.cells[0] = 1


def test_other_forms() -> None:
    found = three().with_notes(("<&>",), True, False)
    table = found.to_arrow()
    assert table.column("integer").to_pylist() == [None, None, 2**60 + 1, 2, 3]
    assert table.column("string").to_pylist() == ["p", "q", None, None, None]
    frame = found.to_pandas()
    assert frame["integer"].tolist()[2:] == [2**60 + 1, 2, 3]
    assert str(frame["time"].iloc[0]) == "1970-01-01 00:00:00.005000+00:00"
    assert found.to_polars().shape == (5, 6)
    assert found.to_dict()["series"][1]["values"] == [2**60 + 1, 2, 3]
    text, page = repr(found), found._repr_html_()
    assert text.splitlines()[0] == "3 series, 5 samples"
    assert 'x{i="2"}' in text
    assert "&lt;&amp;&gt;" in page


def test_json_of_what_json_has_not() -> None:
    found = answered("samples('x')", of([(1, math.nan), (2, math.inf), (3, -math.inf)]))
    assert found.to_dict()["series"][0]["values"] == ["NaN", "Infinity", "-Infinity"]
    assert '"NaN"' in found.to_json()


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=5), st.data())
def test_taking_and_keeping(series: list[list[int]], data: st.DataObject) -> None:
    keys = [SeriesKey("x", (("i", str(i)),)) for i in range(len(series))]
    found = RawSeries.of(keys, [INTEGER] * len(series), series, series)
    chosen = data.draw(st.lists(st.sampled_from(range(len(series))), unique=True))
    taken = found.take(np.array(chosen, np.intp))
    assert [taken.times_of(i) for i in range(len(taken))] == [sorted(series[i]) for i in chosen]
    kept = found.keep(found.times % 2 == 0)
    assert [kept.times_of(i) for i in range(len(kept))] == [[t for t in sorted(one) if t % 2 == 0] for one in series]


# --- transforms ---


@given(POINTS)
def test_dedup_and_compact(points: Points) -> None:
    found = by_series(answered("samples('x').dedup()", of(points)))["x"]
    assert found == sorted(dict(points).items())
    kept: Points = []
    for i, point in enumerate(points):
        if i == 0 or point[1] != points[i - 1][1] or i == len(points) - 1:
            kept.append(point)
    assert by_series(answered("samples('x').compact()", of(points)))["x"] == kept
    ranges = [
        p
        for i, p in enumerate(points)
        if i in (0, len(points) - 1) or p[1] != points[i - 1][1] or p[1] != points[i + 1][1]
    ]
    assert by_series(answered("samples('x').compact(ranges=True)", of(points)))["x"] == ranges


@given(POINTS, st.integers(1, 20))
def test_split_modulo_and_values(points: Points, n: int) -> None:
    parts: dict[str, Points] = {}
    number = 0
    for i, (time, value) in enumerate(points):
        number += int(i > 0 and time - points[i - 1][0] > n)
        parts.setdefault(f'x{{split="{number}"}}', []).append((time, value))
    assert by_series(answered(f"samples('x').split(\"{n}ms\")", of(points))) == parts
    parts = {}
    for time, value in points:
        parts.setdefault(f'x{{quotient="{time // n}"}}', []).append((time % n, value))
    assert by_series(answered(f"samples('x').modulo(\"{n}ms\")", of(points))) == parts
    parts = {}
    for time, value in points:
        parts.setdefault(f'x{{value="{value}"}}', []).append((time, value))
    assert by_series(answered("samples('x').value_split()", of(points))) == parts
    back = answered('samples(\'x\').value_split().relabel("value", "").merge()', of(points))
    assert sorted(by_series(back)["x"]) == sorted(points)


@given(POINTS)
def test_mode_and_integral(points: Points) -> None:
    counts = Counter(value for _, value in points)
    most = max(counts.values())
    first = {value: time for time, value in reversed(points)}
    expected = [(time, value) for value, time in first.items() if counts[value] == most]
    assert sorted(by_series(answered("samples('x').mode()", of(points)))["x"]) == sorted(expected)
    total, out = 0.0, []
    for i, (time, _) in enumerate(points):
        total += float(points[i - 1][1]) * (time - points[i - 1][0]) / 1000.0 if i else 0.0
        out.append((time, total))
    assert by_series(answered("samples('x').integrate()", of(points)))["x"] == out


def test_merge_keeps_the_first_of_one_time_first() -> None:
    store = PlainStore().add("x", {"p": "1"}, [(10, 1), (20, 2)]).add("x", {"p": "2"}, [(20, 3), (5, 0)])
    found = answered('samples(\'x\').relabel("p", "").merge()', store)
    assert by_series(found) == {"x": [(5, 0), (10, 1), (20, 2), (20, 3)]}
    assert not any("use merge to combine them" in note for note in answered("samples('x').merge()", store).notes)
    assert any("use merge to combine them" in note for note in found.notes)


def test_a_step_makes_no_more_than_10_000_series() -> None:
    store = of([(i, i) for i in range(1, 50)])
    store.level_table = ((1, 100_000),)
    many = PlainStore(level_table=((1, 10),)).add("x", {}, [(i % 100 + 1, i) for i in range(10_100)])
    with pytest.raises(QueryError, match="10100 different values: at most 10000"):
        answered("samples('x').value_split()", many)
    assert len(answered("samples('x').value_split()", store)) == 49


# --- windows and buckets ---


def lives(draw: Any) -> list[Sample]:
    times = sorted(draw(st.sets(st.integers(1, 100), min_size=1, max_size=25)))
    birth, value, out = draw(st.sampled_from([-400_000, 0, 1])), 0, []
    for time in times:
        value += draw(st.integers(0, 5))
        if draw(st.integers(0, 6)) == 0:
            birth, value = time, draw(st.integers(0, 3))
        out.append(Sample(time, value, birth))
    return out


@st.composite
def stores(draw: Any) -> PlainStore:
    store = PlainStore(level_table=((1, 10_000),))
    for i in range(draw(st.integers(1, 3))):
        samples = lives(draw)
        ended = draw(st.sampled_from([0, 0, samples[-1].time + 3]))
        store.add("x", {"i": str(i)}, samples, draw(st.sampled_from([Kind.COUNTER, Kind.UNKNOWN])), ended)
    return store


@settings(deadline=None, max_examples=60)
@given(stores(), st.sampled_from(NUMBERS), st.sampled_from([5, 10, 25]))
def test_buckets_of_samples_are_those_of_a_fetch(store: PlainStore, name: str, step: int) -> None:
    """A fetch whose level is so fine that no bucket holds two samples sees all that the samples say."""
    args = MAPPERS[name].case_args
    gap = ', max_gap="50ms"' if MAPPERS[name].predecessor else ""
    call = f'.bucketize("{name}", "{step}ms"{", " + args if args else ""}{gap})'
    fetched, sampled = answered(f"fetch('x'){call}", store), answered(f"samples('x'){call}", store)
    assert fetched.grid == sampled.grid
    assert fetched.keys == sampled.keys
    assert fetched.types.tolist() == sampled.types.tolist()
    for i in range(len(fetched)):
        for a, b in zip(fetched.tolist(i), sampled.tolist(i), strict=True):
            close = isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
            assert repr(a) == repr(b) or close, name


@settings(deadline=None, max_examples=30)
@given(stores(), st.sampled_from(["last", "max", "mean", "count", "median", "increase", "changes"]))
def test_a_window_at_each_sample(store: PlainStore, name: str) -> None:
    """The value at a sample is that of a fetch at that time."""
    gap = ', max_gap="30ms"' if MAPPERS[name].predecessor else ""
    sampled = answered(f'samples(\'x\').map("{name}", "20ms"{gap})', store)
    fetched: Matrix = answered(f'fetch(\'x\').map("{name}", "20ms"{gap})', store)
    for i, key in enumerate(sampled.keys):
        row = dict(zip(fetched.times, fetched.tolist(fetched.keys.index(key)), strict=True))
        for time, value in sampled.tolist(i):
            assert value == row[time] or math.isclose(float(value or 0), float(row[time] or 0))


def test_a_bucket_sees_every_sample() -> None:
    store = PlainStore().add("x", {}, [(time, value) for time, value in zip(range(1, 61), range(60), strict=True)])
    found = answered('samples(\'x\').bucketize("quantile", "50ms", q=0.5)', store)
    assert found.tolist(0) == [24.5, 54.5]
    assert not any("approximate" in note for note in found.notes)
    for query in ("min_count=11", 'nulls="error"'):
        made = answered(f'samples(\'x\').bucketize("median", "20ms", {query})', store) if "count" in query else None
        assert made is None or made.tolist(0) == [9.5, 29.5, 49.5, None, None]
    with pytest.raises(QueryError, match=r'x has no sample in the bucket .* and nulls="error"'):
        answered('samples(\'x\').bucketize("median", "20ms", nulls="error")', store)


def test_texts_and_flags() -> None:
    store = PlainStore().add("x", {"t": "s"}, [(10, "b"), (20, "a"), (30, "a")]).add("x", {"t": "b"}, [(10, True)])
    assert answered('samples(\'x\').bucketize("last", "50ms")', store).latest() == [None, None]
    found = answered('samples(\'x\').bucketize("changes", "50ms")', store)
    assert [found.tolist(i) for i in range(2)] == [[0, None], [1, None]]
    found = answered('samples(\'x\').bucketize("mean", "50ms")', store)
    assert found.series == ['x{t="b"}']
    assert any("1 STRING series left out" in note for note in found.notes)
    assert by_series(answered('samples(\'x\').map("mean", "50ms")', store)) == {'x{t="b"}': [(10, 1.0)]}


def test_memory_is_counted_before_it_is_taken() -> None:
    store = PlainStore().add("x", {}, [(10, 1)])
    with pytest.raises(LimitExceeded, match="memory_bytes"):
        answered('samples(\'x\').bucketize("last", "1ms")', store, Limits(memory_bytes=1_000))
    with pytest.raises(QueryError, match="at most 11000"):
        answer(parse('samples(\'x\').bucketize("last", "1ms").between(0, 100000)'), store, 100 * MINUTE)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("samples('x').fill(\"previous\")", "previous takes series on a grid"),
        ('samples(\'x\').filter("last", ">", 1)', "last takes series on a grid"),
        ("samples('x').transform(\"sort\")", "sort takes series on a grid"),
        ("samples('x').mean(by=[])", "mean takes series on a grid"),
        ("samples('x').rate()", "needs a window"),
        ("samples('x') + 1", "bucketize"),
        ("samples('y')", "no variable is named 'y'"),
        ("fetch('x').split(\"5m\")", "split takes raw samples: begin with samples"),
        ("samples('x').split(\"0m\")", "more than 0"),
        ('samples(\'x\').modulo("1d", label="a b")', "not a label name"),
    ],
)
def test_errors(query: str, error: str) -> None:
    with pytest.raises(QueryError) as caught:
        answered(f"({query})", of([(10, 1)]))
    assert error in str(caught.value)


def test_a_range_without_samples() -> None:
    found = answered("samples('x')", of([(200, 1)]))
    assert len(found) == 0
    assert any("no series that fits has a sample in" in note for note in found.notes)


def test_a_million_samples_take_a_few_array_operations() -> None:
    n = 1_000_000
    times = np.tile(np.arange(100, dtype=np.int64), n // 100)
    keys = tuple(SeriesKey("x", (("i", f"{i:05}"),)) for i in range(n // 100))
    starts = np.arange(0, n + 1, 100, dtype=np.int64)
    found = RawSeries(keys, np.full(len(keys), INTEGER, np.uint8), starts, times, times % 7)
    assert found.keep(times % 2 == 0).samples == n // 2
    assert found.reassigned(found.owner, np.arange(len(keys)), keys).samples == n


def test_windows_over_everything_are_bounded() -> None:
    """100,000 samples each of which looks at all before it: where that cannot be shared it is refused at once."""
    store = offline({"x": [(i, float(i % 7)) for i in range(100_000)]}, step="1m")
    refused = "samples('x').map('median', '9w').between(0, 100000)"
    with pytest.raises(QueryError, match=r"median: 100,000 windows hold 5,000,050,000 samples.* bucketize"):
        store.query(refused)
    found: Any = store.query("samples('x').map('max', '9w').between(0, 100000)")
    assert found.tolist(0)[-1] == (99_999, 6.0)


def test_resample_is_a_method_too() -> None:
    """Of raw samples it is the last of each bucket, however it is called."""
    store = of([(3, 1), (7, 2), (12, 3), (40, 4)])
    texts = [f"samples('x').{call}" for call in ("resample('10ms')", "transform('resample', '10ms')")]
    wanted = answered("samples('x').bucketize('last', '10ms')", store)
    assert wanted.tolist(0)[:4] == [2, 3, None, 4]
    for text in texts:
        assert answered(text, store).tolist(0) == wanted.tolist(0)
        assert parse(str(parse(text))).equals(parse(text))
    with pytest.raises(QueryError, match="resample is for raw samples"):
        answered("fetch('x').resample('10ms')", store)


def test_times_modulo_a_period_work_in_later_steps() -> None:
    """Its times are no longer in the range, which says what is read and nothing else."""
    store = of([(13, 1), (17, 2), (19, 2), (22, 5)])
    assert by_series(answered("samples('x').modulo('10ms').compact()", store)) == {
        'x{quotient="1"}': [(3, 1), (7, 2), (9, 2)],
        'x{quotient="2"}': [(2, 5)],
    }
    late = PlainStore(level_table=((1, 10_000),)).add("x", {}, [(95, 3), (96, 4), (99, 1)])
    for call in ("modulo('10ms').map('max', '5ms')", "modulo('10ms').dedup().map('max', '5ms', after='1ms')"):
        found: Any = answer(parse(f"samples('x').{call}.between(90, 100)"), late, 100 + SETTLE_MS)
        assert dict(found.tolist(0))[9] == 4
    moved: Any = answer(parse("samples('x').modulo('10ms').shift('2ms').between(90, 100)"), late, 100 + SETTLE_MS)
    assert [time for time, _ in moved.tolist(0)] == [7, 8, 11]
