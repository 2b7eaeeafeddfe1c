"""Window functions at the times of raw samples: the worked examples of the reference, compared with buckets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute import raw_windows as ticking
from artimon.compute.cells import BOOLEAN, DOUBLE, INTEGER, STRING
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import bind_params
from artimon.compute.raw_windows import SeriesSamples, run_at_each_sample
from artimon.model.values import INT64_MAX, INT64_MIN, Kind, ValueType, double_to_cell
from query_dsl import evaluate, parse
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore, Sample
from tests.seeds import drawn, fixed_and_drawn

NAN = math.nan
Series = Sequence[tuple[int, float | int | bool]]


def ticks_of(*series: Series, kind: int = DOUBLE, births: Sequence[int] | None = None, ended: int = 0) -> SeriesSamples:
    samples = [sample for one in series for sample in one]
    cells = [double_to_cell(float(v)) if kind == DOUBLE else int(v) for _, v in samples]
    return SeriesSamples(
        starts=np.cumsum([0, *(len(one) for one in series)]),
        times=np.array([t for t, _ in samples], np.int64),
        cells=np.array(cells, np.int64),
        types=np.full(len(series), kind, np.uint8),
        births=None if births is None else np.array(births, np.int64),
        kinds=np.full(len(series), Kind.COUNTER, np.uint8),
        ended_ms=np.full(len(series), ended, np.int64),
    )


def run(name: str, ticks: SeriesSamples, before: int, after: int = 0, *, min_count: int | None = None,
        gap: int = 300_000, **args: Any) -> list[float | int | None]:  # fmt: skip
    function = FUNCTIONS[name]
    given = bind_params(name, function.params, args.items())
    out = run_at_each_sample(function, ticks, before, after, given, max_gap_ms=gap, min_count=min_count)
    numbers = out.cells[0].view(np.float64) if (out.types == DOUBLE).all() else out.cells[0]
    return [v if p else None for v, p in zip(numbers.tolist(), out.present[0].tolist(), strict=True)]


def at(times: Sequence[int], values: Sequence[float]) -> Series:
    return list(zip(times, values, strict=True))


FOUR = (10, 20, 30, 40)


def test_e3_three_points() -> None:
    ticks = ticks_of(at(FOUR, (2, 8, 11, 20)))
    assert run("mean", ticks, 30) == [2, 5, 7, 13]
    assert run("median", ticks, 30) == [2, 5, 8, 11]
    assert run("mean", ticks, 30, min_count=3) == [None, None, 7, 13]
    assert run("mean", ticks, 20) == [2, 5, 9.5, 15.5]


def test_e4_forward() -> None:
    assert run("max", ticks_of(at(FOUR, (42, 123, 211, 132)), kind=INTEGER), 10, 20) == [211, 211, 211, 132]


def test_e5_last_and_first() -> None:
    ticks = ticks_of(at(FOUR, (42, 123, 342, 423)), kind=INTEGER)
    assert run("last", ticks, 10, 10) == [123, 342, 423, 423]
    assert run("first", ticks, 60) == [42, 42, 42, 42]
    assert run("first", ticks, 30) == [42, 42, 42, 123]


def test_e6_delta_has_no_first() -> None:
    assert run("delta", ticks_of(at((10, 20), (5, 120)), at((10, 20), (8, 42)), kind=INTEGER), 60) == [
        None,
        115,
        None,
        34,
    ]


def test_e7_deviation() -> None:
    ticks = ticks_of(at((10, 20), (5, 120)), at((10, 20), (8, 42)))
    assert run("sd", ticks, 60) == [None, 81.31727983645297, None, 24.041630560342615]
    assert run("var", ticks, 60) == [None, 6612.5, None, 578]
    assert run("sd", ticks, 60, ddof=0) == [0, 57.5, 0, 17]
    assert run("var", ticks, 60, ddof=0) == [0, 3306.25, 0, 289]


def test_e8_nan_is_counted() -> None:
    assert run("count", ticks_of(at(FOUR, (5, NAN, 5, 5))), 30) == [1, 2, 3, 3]


def test_e9_around() -> None:
    ticks = ticks_of(at(range(1, 10), [10] * 9))
    assert run("sum", ticks, 3, 2) == [30, 40, 50, 50, 50, 50, 50, 40, 30]
    assert run("sum", ticks, 3, 2, min_count=5) == [None, None, 50, 50, 50, 50, 50, None, None]
    assert run("sum", ticks, 3, min_count=3) == [None, None, *[30] * 7]


@pytest.mark.parametrize("before", [INT64_MAX, 2**62, 10**6])
def test_e10_without_bound(before: int) -> None:
    assert run("max", ticks_of(at(FOUR, (42, 123, 211, 132)), kind=INTEGER), before)[-3:] == [123, 211, 211]


def test_the_limits_of_time() -> None:
    ticks = ticks_of(at((INT64_MIN, 0, INT64_MAX - 1, INT64_MAX), (1, 2, 3, 4)), kind=INTEGER)
    assert run("count", ticks, INT64_MAX, INT64_MAX) == [1, 3, 3, 2]  # (t - 2^63 + 1, t + 2^63 - 1]
    assert run("sum", ticks, 1) == [1, 2, 3, 4]
    assert run("delta", ticks, INT64_MAX, gap=0) == [None, None, 1, 1]


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "windows of many widths"))
def test_windows_of_many_widths(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts and pauses: every window as one plain sum; in chunks of any size."""
    random = np.random.default_rng(seed)
    times = np.sort(random.choice(5_000, 300, replace=False)).tolist()
    values = random.integers(0, 100, 300).tolist()
    other = [(t + 3, v + 1) for t, v in zip(times, values, strict=True)][:50]
    expect = [
        sum(v for t, v in one if now - 700 < t <= now + 40)
        for one in (at(times, values), other)
        for now, _ in one
    ]  # fmt: skip
    ticks = ticks_of(at(times, values), other, kind=INTEGER)
    assert run("sum", ticks, 700, 40) == expect
    monkeypatch.setattr(ticking, "CHUNK_CELLS", 64)
    assert run("sum", ticks, 700, 40) == expect


ALL: dict[str, dict[str, Any]] = {name: {} for name, one in FUNCTIONS.items() if not one.grid_only} | {
    "quantile": {"q": 0.3},
    "ewma": {"alpha": 0.5},
    "holt": {"alpha": 0.5, "beta": 0.5},
    "predict_linear": {"horizon": 500},
}


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_as_one_bucket_each(name: str, stored: bool) -> None:
    """Samples on a grid, one a bucket, with births: samples answer like fetch."""
    random = np.random.default_rng(drawn("one bucket each") if stored else 7)
    samples, birth, value = [], -40, 0
    for tick in range(10, 600, 10):
        if random.random() < 0.2:
            birth, value = tick - 4, 0
        value += int(random.integers(0, 9))
        if random.random() < 0.7:
            samples.append(Sample(tick, value, birth if stored else 0))
    store = PlainStore(level_table=((10, 100),)).add("x", {}, samples, Kind.COUNTER)
    args = "".join(f", {k}='{v}ms'" if k == "horizon" else f", {k}={v!r}" for k, v in ALL[name].items())
    gap = ", max_gap='30ms'" if FUNCTIONS[name].predecessor else ""
    text = f"fetch('x').map('{name}', '50ms'{args}, after='20ms'{gap}).between(0, 620)"
    matrix = evaluate(parse(text), store, 1000 + SETTLE_MS)
    row = dict(zip(matrix.grid.ends().tolist(), matrix.tolist(0), strict=True))
    births = [s.birth for s in samples]
    ticks = ticks_of([(s.time, int(s.value)) for s in samples], kind=INTEGER, births=births)
    got = run(name, ticks, 50, 20, gap=30, **ALL[name])
    expect = [row[s.time] for s in samples]
    assert [v is None for v in got] == [v is None for v in expect]
    for a, b in zip(got, expect, strict=True):
        assert a is None or a == pytest.approx(b, rel=1e-12, nan_ok=True)


def test_births_of_another_series_are_its_own() -> None:
    births = [-1_000, -1_000, 15, 15]
    ticks = ticks_of(at((10, 20), (5, 7)), at((18, 28), (1, 4)), kind=INTEGER, births=births)
    assert run("increase", ticks, 30, gap=10) == [None, 2, 1, 4]
    assert run("resets", ticks, 30) == [0, 0, 0, 0]


def test_decreases_of_computed_values_are_resets() -> None:
    assert run("resets", ticks_of(at(FOUR, (5, 3, 4, 1))), 15) == [0, 1, 1, 1]


def test_texts_and_truth() -> None:
    words = ticks_of(at(FOUR, (0, 1, 1, 0)), kind=STRING)
    assert run("changes", words, 30) == [0, 1, 1, 1]
    assert run("last", words, 30) == [0, 1, 1, 0]
    assert run("mean", ticks_of(at(FOUR, (1, 0, 0, 1)), kind=BOOLEAN), 20) == [1, 0.5, 0, 0.5]


def test_an_ended_series_has_no_last() -> None:
    ticks = ticks_of(at(FOUR, (1, 2, 3, 4)), ended=40)
    assert run("last", ticks, 10) == [1, 2, 3, None]
    assert run("sum", ticks, 10) == [1, 2, 3, 4]


def test_two_samples_of_one_time() -> None:
    ticks = ticks_of([(10, 1.0), (10, 3.0), (20, 5.0)])
    assert run("sum", ticks, 10) == [4, 4, 5]
    assert run("derivative", ticks, 10) == [None, None, None]
    assert run("derivative", ticks, 20)[2] == pytest.approx(300)


def test_empty_series_are_accepted() -> None:
    assert run("mean", ticks_of(), 10) == []
    function = FUNCTIONS["changes"]
    out = run_at_each_sample(function, ticks_of([], [(10, 1.0)]), 10)
    assert out.types.tolist() == [INTEGER, INTEGER]
    assert out.cells.shape == (1, 1)


@pytest.mark.parametrize(("before", "after"), [(0, 10), (-5, 10), (10, -1)])
def test_a_window_holds_its_sample(before: int, after: int) -> None:
    with pytest.raises(ValueError, match="does not contain"):
        run_at_each_sample(FUNCTIONS["sum"], ticks_of(), before, after)


def test_an_error_of_the_check_stops_the_computation() -> None:
    def check() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run_at_each_sample(FUNCTIONS["sum"], ticks_of(at(FOUR, FOUR)), 10, check=check)


def test_types_by_series() -> None:
    ticks = SeriesSamples(
        starts=np.array([0, 2, 3]),
        times=np.array([10, 20, 10]),
        cells=np.array([2**53 + 1, 2**53 + 3, double_to_cell(1.5)]),
        types=np.array([ValueType.INTEGER, ValueType.DOUBLE], np.uint8),
    )
    out = run_at_each_sample(FUNCTIONS["max"], ticks, 20)
    assert out.types.tolist() == [INTEGER, DOUBLE]
    assert out.cells[0].tolist() == [2**53 + 1, 2**53 + 3, double_to_cell(1.5)]


def _rounding(ticks: SeriesSamples, owner: int) -> float:
    """The most by which two orders of adding the numbers of one series differ."""
    cells = ticks.cells[ticks.starts[owner] : ticks.starts[owner + 1]]
    numbers = np.abs(cells.view(np.float64) if ticks.types[owner] == ValueType.DOUBLE else cells.astype(np.float64))
    return float(np.where(np.isfinite(numbers), numbers, 0.0).max() * 2.0**-52 * len(numbers))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_windows_that_share_their_samples_are_read_together(data: st.DataObject) -> None:
    """With the same result as one by one, for every type, with NaN, infinities and numbers at the ends of int64. Sums
    are made in another order, so they differ by what rounding does to the greatest number of the series."""
    types = data.draw(st.lists(st.sampled_from([ValueType.INTEGER, ValueType.DOUBLE, ValueType.BOOLEAN]), max_size=3))
    times, cells, starts, ended = list[int](), list[int](), [0], list[int]()
    for type_ in types:
        n = data.draw(st.integers(1, 12))
        times += sorted(data.draw(st.lists(st.integers(0, 60), min_size=n, max_size=n)))
        if type_ is ValueType.DOUBLE:
            values = data.draw(st.lists(st.floats(), min_size=n, max_size=n))
            cells += np.array(values, np.float64).view(np.int64).tolist()
        elif type_ is ValueType.BOOLEAN:
            cells += data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
        else:
            edge = st.sampled_from([-(2**63), 2**63 - 1, 2**61, 0, 7])
            cells += data.draw(st.lists(edge, min_size=n, max_size=n))
        starts.append(len(times))
        ended.append(data.draw(st.sampled_from([0, 0, 30])))
    ticks = SeriesSamples(
        starts=np.array(starts),
        times=np.array(times, np.int64),
        cells=np.array(cells, np.int64),
        types=np.array([int(t) for t in types], np.uint8),
        ended_ms=np.array(ended, np.int64),
    )
    function = FUNCTIONS[data.draw(st.sampled_from(["count", "first", "last", "min", "max", "sum", "mean"]))]
    before, after = data.draw(st.sampled_from([1, 5, 100])), data.draw(st.sampled_from([0, 3, 100]))
    least = data.draw(st.sampled_from([None, 0, 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("artimon.compute.shared_windows.MIN_SHARING", 0)
        quick = run_at_each_sample(function, ticks, before, after, min_count=least)
        patch.setattr("artimon.compute.raw_windows.run_shared", lambda *_: None)
        plain = run_at_each_sample(function, ticks, before, after, min_count=least)
    assert quick.types.tolist() == plain.types.tolist()
    assert quick.present.tolist() == plain.present.tolist()
    owners = np.repeat(np.arange(len(types)), np.diff(ticks.starts))
    for owner, was, now in zip(owners.tolist(), plain.cells[0], quick.cells[0], strict=True):
        if quick.types[owner] == ValueType.DOUBLE:
            pair = np.array([was, now], np.int64).view(np.float64)
            np.testing.assert_allclose(pair[0], pair[1], rtol=1e-12, atol=_rounding(ticks, owner))
        else:
            assert was == now
