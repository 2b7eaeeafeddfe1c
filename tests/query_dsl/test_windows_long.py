"""Long sliding windows over raw samples do not visit each sample again for every window that holds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute import raw_windows as ticking
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import bind_params
from artimon.compute.raw_windows import SeriesSamples, WindowsTooWide, run_at_each_sample
from artimon.model.values import INT64_MAX, INT64_MIN, Kind, ValueType

OF_ENDS = sorted(name for name, function in FUNCTIONS.items() if function.edges)
SHARED = sorted(name for name, function in FUNCTIONS.items() if function.shared is not None)
Sample = tuple[int, int, int]
"""Milliseconds since the sample before, whether a life begins, value."""


def ticks_of(series: list[list[Sample]], kind: ValueType, stored: bool) -> SeriesSamples:
    times, births, cells, starts = list[int](), list[int](), list[int](), [0]
    for samples in series:
        time, birth = 1_000, 400
        for apart, begins, value in samples:
            birth = time + apart // 2 if begins else birth
            time += apart
            times.append(time)
            births.append(birth)
            cells.append(value if kind != ValueType.DOUBLE else int(np.float64(value / 2).view(np.int64)))
        starts.append(len(times))
    return SeriesSamples(
        starts=np.array(starts),
        times=np.array(times, np.int64),
        cells=np.array(cells, np.int64),
        types=np.full(len(series), int(kind), np.uint8),
        births=np.array(births, np.int64) if stored else None,
        kinds=np.full(len(series), Kind.COUNTER, np.uint8),
    )


VALUES = st.integers(0, 50) | st.sampled_from([2**53 + 1, INT64_MAX, INT64_MIN])
SERIES = st.lists(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9).map(lambda n: n == 0), VALUES), max_size=25), max_size=3
)


@settings(max_examples=80, deadline=None)
@given(
    series=SERIES,
    kind=st.sampled_from([ValueType.INTEGER, ValueType.DOUBLE]),
    stored=st.booleans(),
    name=st.sampled_from(OF_ENDS),
    widths=st.tuples(st.sampled_from([1, 30, 200, 5_000]), st.sampled_from([0, 0, 60]), st.sampled_from([0, 25, 900])),
    least=st.sampled_from([None, 2, 7]),
)
def test_functions_of_the_ends_look_at_nothing_between_but_births(
    series: list[list[Sample]],
    kind: ValueType,
    stored: bool,
    name: str,
    widths: tuple[int, int, int],
    least: int | None,
) -> None:
    ticks, (before, after, gap) = ticks_of(series, kind, stored), widths
    quick = run_at_each_sample(FUNCTIONS[name], ticks, before, after, max_gap_ms=gap, min_count=least)
    every = replace(FUNCTIONS[name], edges=False)
    whole = run_at_each_sample(every, ticks, before, after, max_gap_ms=gap, min_count=least)
    assert quick.types.tolist() == whole.types.tolist()
    assert quick.present.tolist() == whole.present.tolist()
    assert quick.cells[quick.present].tolist() == whole.cells[whole.present].tolist()


def steady(samples: int, births_every: int = 0) -> SeriesSamples:
    """One counter that grows by its own number each second; perhaps with a life each so many samples."""
    at = np.arange(samples, dtype=np.int64)
    lives = at // births_every if births_every else np.zeros(samples, np.int64)
    return SeriesSamples(
        starts=np.array([0, samples]),
        times=1_000 * (at + 1),
        cells=at * (at + 1) // 2,
        types=np.array([int(ValueType.INTEGER)], np.uint8),
        births=lives * births_every * 1_000 + 500 if births_every else np.full(samples, 500, np.int64),
        kinds=np.full(1, Kind.COUNTER, np.uint8),
    )


@pytest.mark.parametrize("name", [*SHARED, *OF_ENDS])
def test_sliding_windows_of_many_samples_are_no_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 windows of 10,000 samples: 150 million, of which no more than some hundred thousand are looked at."""
    monkeypatch.setattr(ticking, "MAX_CELLS", 100_000)
    found = run_at_each_sample(FUNCTIONS[name], steady(20_000), 10_000_000)
    last, first = 19_999, 10_000  # of the newest window; before it stands 9,999
    sums = (last * (last + 1) // 2, first * (first + 1) // 2, (first - 1) * first // 2)
    total = sum(i * (i + 1) // 2 for i in range(first, last + 1))
    wanted = {
        "min": sums[1], "max": sums[0], "sum": float(total), "mean": total / 10_000, "count": 10_000,
        "first": sums[1], "last": sums[0], "increase": sums[0] - sums[2], "delta": sums[0] - sums[2],
        "rate": (sums[0] - sums[2]) / 10_000, "irate": float(last),
    }[name]  # fmt: skip
    cell = found.cells[0, -1:]
    value = cell.view(np.float64)[0] if isinstance(wanted, float) else cell[0]
    assert found.present.sum() >= 19_999
    assert value == pytest.approx(wanted, rel=1e-12)


def test_functions_of_all_samples_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of very many lives are limited, too."""
    monkeypatch.setattr(ticking, "MAX_CELLS", 100_000)
    args = bind_params("median", FUNCTIONS["median"].params, ())
    with pytest.raises(WindowsTooWide, match="use shorter windows"):
        run_at_each_sample(FUNCTIONS["median"], steady(2_000), 1_000_000, 0, args)
    with pytest.raises(WindowsTooWide, match="use shorter windows"):
        run_at_each_sample(FUNCTIONS["increase"], steady(2_000, births_every=1), 1_000_000)
    assert run_at_each_sample(FUNCTIONS["increase"], steady(2_000, births_every=500), 1_000_000).present.all()
