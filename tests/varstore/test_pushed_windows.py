"""Windows that a shard computes bucket by bucket, compared with the evaluator's functions applied to its buckets."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from artimon.compute import functions
from artimon.compute.aggregate import Aggregate, AggregateRequest, NotPushed, aggregate_buckets
from artimon.compute.reduction import WindowPlan
from artimon.compute.statistics import STATISTICS
from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import Grid, Level
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind, Value, ValueType
from tests.seeds import fixed_and_drawn
from tests.varstore.worlds import Row, TestBatch, range_of
from varstore.query import selection_parts as parts
from varstore.shard.shard import Shard

HOUR, MINUTE = 3_600_000, 60_000
T = 1_800_000_000_000 // HOUR * HOUR
MINUTES = 26
LEVELS = (Level(60, 40), Level(300, 12))
TYPES = (ValueType.INTEGER, ValueType.DOUBLE, ValueType.BOOLEAN, ValueType.STRING)
FUNCTIONS = tuple(name for name, function in functions.FUNCTIONS.items() if function.rolling is not None)


class World:
    """A shard of series of all types and kinds with gaps, crowded buckets, births, resets and ends."""

    def __init__(
        self, seed: int, series: int, gaps: float, births: float, kinds: tuple[ValueType, ...], huge: bool = False
    ) -> None:
        """Feed the shard; `huge` adds the greatest integers now and then."""
        self._random, self._huge = np.random.default_rng(seed), huge
        self._gaps, self._births, self._births_of = gaps, births, dict[int, int]()
        self._types = [kinds[i] for i in self._random.integers(0, len(kinds), series).tolist()]
        self._texts = [canonical("m", {"id": f"{i:03}", "rack": f"r{i % 5}"}) for i in range(series)]
        self.shard = Shard(capacity=2_000, levels=LEVELS)
        infos = tuple(
            SeriesInfo(text, type_, Kind(int(self._random.integers(0, 3))))
            for text, type_ in zip(self._texts, self._types, strict=True)
        )
        for source in range(2):
            self.shard.announce(SeriesBlock(f"s{source}", 0, 1, infos[source::2]))
        self._counts = [0] * series
        log: list[TestBatch] = []
        for minute in range(1, MINUTES + 1):
            for source in range(2):
                rows = [row for i in range(source, series, 2) for row in self._rows(i, minute)]
                at = T + minute * MINUTE + 1_000
                log.append(TestBatch(BatchId("a", 1, source, minute), f"s{source}", at, rows))
        self.shard.feed(range_of(log, 0, len(log)))

    def _rows(self, i: int, minute: int) -> list[Row]:
        random, out = self._random, list[Row]()
        if random.random() < self._gaps:
            return out
        left = T + (minute - 1) * MINUTE
        for time in sorted(random.integers(left + 1, left + MINUTE, int(random.choice([1, 1, 1, 2, 3]))).tolist()):
            birth = self._births_of.setdefault(i, T - HOUR)
            if random.random() < self._births:
                birth = self._births_of[i] = time - int(random.integers(0, 90_000))
                self._counts[i] = 0
            self._counts[i] += int(random.integers(0, 9))
            out.append((fingerprint(self._texts[i]), time, birth, self._value(i)))
        if random.random() < 0.005 and out:
            out.append((out[-1][0], out[-1][1] + 1, out[-1][2], None))
        return out

    def _value(self, i: int) -> Value:
        match self._types[i]:
            case ValueType.INTEGER:
                huge = self._huge and self._random.random() < 0.002
                return int(self._random.choice([2**63 - 1, -(2**63), 2**62])) if huge else self._counts[i]
            case ValueType.DOUBLE:
                odd = self._random.random() < 0.005
                return float(self._random.choice([math.nan, math.inf, -0.0])) if odd else self._counts[i] / 7
            case ValueType.BOOLEAN:
                return bool(self._counts[i] % 2)
            case _:
                return f"v{self._counts[i] % 3}"

    def compare(self, request: AggregateRequest) -> Aggregate | None:
        """Return the shard's aggregate after comparing it with the aggregate of its buckets."""
        selected = self.shard.select(replace(request.buckets(), statistics=STATISTICS))
        try:
            found = self.shard.aggregate(request)
        except NotPushed:
            assert ValueType.INTEGER in self._types
            return None
        wanted = aggregate_buckets(selected, request)
        assert (found.counts, found.gauge) == (wanted.counts, wanted.gauge), request
        same(found, wanted, request, not self._huge)
        return found


def same(found: Aggregate, wanted: Aggregate, request: AggregateRequest, sums: bool) -> None:
    """Compare bit by bit where a class has one member, otherwise all but the last bit of sums, unless `sums` is
    False."""
    assert sorted(found.classes) == sorted(wanted.classes)
    order = [found.classes.index(class_) for class_ in wanted.classes]
    got, must = found.values, wanted.values
    assert np.array_equal(got.members[order], must.members), request
    assert np.array_equal(got.count[order], must.count), request
    some, single = must.count > 0, must.count == 1
    if got.extreme is not None and must.extreme is not None:
        assert np.array_equal(got.double[order], must.double), request
        assert np.array_equal(_shown(got.extreme[order], must.double)[some], _shown(must.extreme, must.double)[some])
    if got.sums is not None and must.sums is not None:
        high = got.sums.high[order]
        assert np.array_equal(high[single], must.sums.high[single], equal_nan=True), request
        if not sums:  # where terms cancel, more bits may differ
            return
        with np.errstate(all="ignore"):
            near = np.abs(high - must.sums.high) <= np.spacing(np.abs(must.sums.high))
        assert (near | (high == must.sums.high) | (np.isnan(high) & np.isnan(must.sums.high)))[some].all(), request


def _shown(cells: npt.NDArray[Any], double: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return cells with one NaN and one zero."""
    floats = cells.view(np.float64) + 0.0
    clean = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    return np.where(double[:, None], clean, cells)


def request_of(random: Random) -> AggregateRequest:
    """Return windows of any shape over the newest rows of a level."""
    step = random.choice([MINUTE, MINUTE, MINUTE, 5 * MINUTE])
    end, n = T + random.randint(MINUTES - 4, MINUTES + 2) * MINUTE, random.randint(1, 20 if step == MINUTE else 5)
    left, right = random.choice([0, 0, 1, 3]), random.choice([0, 0, 1])
    width, each = min(random.choice([1, 1, 2, 3, 5, 9]), left + n + right), random.choice([1, 1, 1, 2, 5])
    first_end = random.randint(width - 1, left + n + right - 1)
    windows = WindowPlan(
        random.choice(FUNCTIONS),
        (left + n + right - 1 - first_end) // each + 1,
        width,
        first_end,
        each,
        left,
        right,
        random.choice([0, 30_000, 5 * MINUTE]),
        random.choice([None, None, None, 0, 1, 2, 4]),
        random.choice([False, False, True]),
    )
    if random.random() < 0.2:
        windows = WindowPlan(windows.function, n, max_gap_ms=5 * MINUTE)
    matchers = (Matcher(NAME, "=", "m"), *random.choice([(), (), (Matcher("id", "=~", "0[0-3].*"),)]))
    reducer, by = (
        random.choice(["mean", "sum", "min", "max", "count"]),
        random.choice([(), ("rack",), ("id",)]),
    )
    return AggregateRequest(matchers, Grid(-(-end // step) * step, step, n), windows, reducer, by)


def compare_some(seed: int, requests: int) -> None:
    """Compare random requests on one world."""
    random = Random(seed)
    kinds = random.choice([TYPES, TYPES, TYPES[:1], TYPES[1:2], TYPES[:2]])
    gaps, births, huge = random.choice([0.0, 0.0, 0.1, 0.6]), random.choice([0.0, 0.01, 0.2]), seed % 3 == 0
    world = World(seed, 40, gaps, births, kinds, huge)
    for _ in range(requests):
        request = request_of(random)
        world.compare(request)
        world.compare(request)  # the second time some rows come from the cache


@pytest.mark.parametrize("seed", fixed_and_drawn(range(6), "pushed windows", 6))
def test_pushed_windows_equal_those_of_the_evaluator(seed: int) -> None:
    compare_some(seed, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", fixed_and_drawn(range(100, 150), "pushed windows at length", 250))
def test_many_pushed_windows_equal_those_of_the_evaluator(seed: int) -> None:
    compare_some(seed, 60)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("width", [1, 5])
def test_windows_do_not_depend_on_the_size_of_parts(function: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts end anywhere among the slots, and include unused slots."""
    world = World(7, 400, 0.05, 0.02, TYPES)
    monkeypatch.setattr(parts, "PART", 64)
    monkeypatch.setattr(parts, "LEAST_PART", 64)
    grid = Grid(T + MINUTES * MINUTE, MINUTE, 20)
    windows = WindowPlan(function, 20 - width + 1, width, width - 1, max_gap_ms=5 * MINUTE)
    for pattern in (".*", "[0-9][0-9][13579]", "..[0-8]"):
        matchers = (Matcher(NAME, "=", "m"), Matcher("id", "=~", pattern))
        world.compare(AggregateRequest(matchers, grid, windows, "sum", ("rack",)))


def test_sums_beyond_64_bits_equal_those_of_the_evaluator() -> None:
    """Sums of windows with huge integers are rounded, those of others are exact."""
    world = World(1, 4, 0.0, 0.0, TYPES[:1])
    request = AggregateRequest(
        (Matcher(NAME, "=", "m"),), Grid(T + MINUTES * MINUTE, MINUTE, 5), WindowPlan("sum", 1, 5, 4), "sum", ("id",)
    )
    log = [TestBatch(BatchId("a", 1, 0, 0), "s0", T, [])] * (2 * MINUTES)
    rows: list[Row] = [(fingerprint(canonical("m", {"id": "000", "rack": "r0"})), T + MINUTES * MINUTE - 1, T, 2**61)]
    log.append(TestBatch(BatchId("b", 1, 0, 0), "s0", T + MINUTES * MINUTE + 1_000, rows))
    world.shard.feed(range_of(log, 2 * MINUTES, 2 * MINUTES + 1))
    world.compare(request)
