"""Functions of windows and the look-back, against a plain evaluation sample by sample."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from artimon.model.values import STALE
from query_dsl.promql import range_query
from query_dsl.promql.scripted_samples import LiteralSamples
from tests.seeds import fixed_and_drawn

Points = list[tuple[int, float]]


def rate(points: Points, start: int, end: int) -> float | None:
    """Return the extrapolated rate of a counter, as Prometheus documents it."""
    if len(points) < 2:
        return None
    grown = points[-1][1] - points[0][1] + sum(a for (_, a), (_, b) in pairwise(points) if b < a)
    sampled = (points[-1][0] - points[0][0]) / 1000
    mean = sampled / (len(points) - 1)
    before, after = (points[0][0] - start) / 1000, (end - points[-1][0]) / 1000
    before = before if before < mean * 1.1 else mean / 2
    if grown > 0 and points[0][1] >= 0:
        before = min(before, sampled * points[0][1] / grown)
    after = after if after < mean * 1.1 else mean / 2
    return grown * (sampled + before + after) / sampled / ((end - start) / 1000)


def deriv(points: Points, *_: int) -> float | None:
    if len(points) < 2:
        return None
    seconds = [t / 1000 for t, _ in points]
    return statistics.linear_regression(seconds, [v for _, v in points]).slope


def of_values(function: Callable[[list[float]], float]) -> Callable[[Points, int, int], float | None]:
    return lambda points, *_: function([v for _, v in points]) if points else None


def pairs(count: Callable[[float, float], bool]) -> Callable[[list[float]], float]:
    return lambda found: sum(count(a, b) for a, b in pairwise(found))


PLAIN: dict[str, Callable[[Points, int, int], float | None]] = {
    "rate": rate,
    "deriv": deriv,
    "sum_over_time": of_values(math.fsum),
    "avg_over_time": of_values(lambda found: math.fsum(found) / len(found)),
    "min_over_time": of_values(min),
    "max_over_time": of_values(max),
    "count_over_time": of_values(len),
    "last_over_time": of_values(lambda found: found[-1]),
    "stddev_over_time": of_values(statistics.pstdev),
    "changes": of_values(pairs(lambda a, b: a != b)),
    "resets": of_values(pairs(lambda a, b: b < a)),
    "irate": lambda points, *_: (
        None
        if len(points) < 2
        else (points[-1][1] - (points[-2][1] if points[-1][1] >= points[-2][1] else 0))
        / (points[-1][0] - points[-2][0])
        * 1000
    ),
}


def some_points(random: Random) -> dict[int, float]:
    """Samples at odd distances, some of them markers of an end."""
    time, value, found = random.randrange(60_000), random.randrange(100), {}
    for _ in range(random.randrange(40)):
        time += random.choice([10_000, 10_000, 10_000, 15_500, 61_000, 400_000])
        value = random.choice([value + random.randrange(20), value, random.randrange(5)])
        found[time] = STALE if random.random() < 0.05 else float(value)
    return found


@pytest.mark.parametrize("seed", fixed_and_drawn(range(6), "promql windows", 3))
def test_windows_are_those_of_a_plain_evaluation(seed: int) -> None:
    random = Random(seed)
    source = LiteralSamples()
    series = {str(i): some_points(random) for i in range(8)}
    for name, points in series.items():
        source.add({"__name__": "x_total", "i": name}, points)
    start, step = random.randrange(200_000), random.choice([7_000, 60_000])
    range_ms, offset_ms = random.choice([30_000, 120_000, 900_000]), random.choice([0, 0, 45_000])
    times = [start + i * step for i in range(60)]
    for function, plain in PLAIN.items():
        text = f"{function}(x_total[{range_ms}ms]{f' offset {offset_ms}ms' if offset_ms else ''})"
        found = {
            labels["i"]: dict(points)
            for labels, points in range_query(text, times[0], times[-1], step, source).series()
        }
        for name, samples in series.items():
            kept = [(t, v) for t, v in sorted(samples.items()) if not math.isnan(v)]
            for time in times:
                end = time - offset_ms
                expected = plain([(t, v) for t, v in kept if end - range_ms < t <= end], end - range_ms, end)
                here = found.get(name, {}).get(time)
                assert (here is None) == (expected is None), (text, name, time, here, expected)
                assert here is None or here == pytest.approx(expected, rel=1e-9, abs=1e-9), (text, name, time)


@pytest.mark.parametrize("seed", fixed_and_drawn(range(4), "promql look-back", 2))
def test_the_newest_sample_counts_unless_the_series_ended(seed: int) -> None:
    random = Random(seed)
    source = LiteralSamples()
    series = {str(i): some_points(random) for i in range(8)}
    for name, points in series.items():
        source.add({"__name__": "x", "i": name}, points)
    times = list(range(0, 2_000_000, 33_000))
    found = {labels["i"]: dict(p) for labels, p in range_query("x", 0, times[-1], 33_000, source).series()}
    for name, samples in series.items():
        for time in times:
            before = [t for t in samples if time - 300_000 < t <= time]
            expected = samples[max(before)] if before else STALE
            assert found.get(name, {}).get(time) == (None if math.isnan(expected) else expected)


@pytest.mark.parametrize("seed", fixed_and_drawn(range(3), "promql shared times", 1))
def test_series_that_share_their_times_have_the_windows_of_each_alone(seed: int) -> None:
    random = Random(seed)
    patterns = [sorted(random.sample(range(0, 900_000, 500), 20)) for _ in range(3)]
    together, found = LiteralSamples(), {}
    for i in range(24):
        labels = {"__name__": "x_total", "i": str(i)}
        points = {time: float(random.randrange(50)) for time in patterns[i % 3]}
        together.add(labels, points)
        alone = LiteralSamples()
        alone.add(labels, points)
        (found[i],) = range_query("rate(x_total[2m])", 0, 900_000, 10_000, alone).series()
    both = range_query("rate(x_total[2m])", 0, 900_000, 10_000, together).series()
    assert sorted(both, key=repr) == sorted(found.values(), key=repr)
    assert any(points for _, points in both)
