"""A PromQL query gives the same answer whether shards compute windows and aggregations or samples are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.model.grid import DEFAULT_LEVELS, Level, parse_levels
from artimon.model.values import Kind
from query_dsl.promql import PromqlResult, query_store
from query_dsl.promql.store_samples import MISSING
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.engine_store import EngineStore, MemoryStore
from query_dsl.stores.levels import StoreReach
from tests.query_dsl.plain_store import PlainStore
from tests.query_dsl.pushing import Plain, Together
from tests.query_dsl.test_pushdown import HOUR, MINUTE, T, Told, fed_shards
from tests.seeds import fixed_and_drawn

NOW = T + 20_000
ALIGNED = {"start_ms": T - 30 * MINUTE, "end_ms": T, "step_ms": MINUTE}
TIMES: dict[str, dict[str, Any]] = {
    "aligned": ALIGNED,
    "every five minutes": {**ALIGNED, "step_ms": 5 * MINUTE},
    "between": {"start_ms": T - 20 * MINUTE + 7_123, "end_ms": T, "step_ms": MINUTE},
    "every 20 s": {"start_ms": T - 10 * MINUTE + 3_000, "end_ms": T, "step_ms": 20_000},
    "now": {"end_ms": NOW},
}
WINDOWS = (
    "{0}", "rate({0}[5m])", "increase({0}[10m])", "delta({0}[7m])", "irate({0}[5m])", "idelta({0}[3m])",
    "changes({0}[10m])", "resets({0}[10m])", "deriv({0}[5m])", "stddev_over_time({0}[5m])", "last_over_time({0}[9m])",
    "first_over_time({0}[5m])", "present_over_time({0}[2m])", "count_over_time({0}[5m])", "sum_over_time({0}[5m])",
    "avg_over_time({0}[4m])", "max_over_time({0}[5m])", "min_over_time({0}[5m])", "rate({0}[90s])",
    "max_over_time({0}[150s])", "sum_over_time({0}[1m] offset 90s)", "{0} offset 1m", "rate({0}[5m] @ end())",
)  # fmt: skip
AGGREGATIONS = (
    "sum by (rack) ({0})", "avg by (rack) ({0})", "min without (id) ({0})", "max({0})", "count by (rack) ({0})",
    "group by (rack) ({0})", "stddev by (rack) ({0})", "stdvar({0})", "topk by (rack) (2, {0})", "bottomk(3, {0})",
    "quantile by (rack) (0.7, {0})", "sum by (__name__, rack) ({0})", "sum without () ({0})",
)  # fmt: skip


class Fleet:
    """Series of all types with gaps, resets, ends, NaN and infinities; some are reported by two shards."""

    def __init__(self, seed: int, several: bool = False) -> None:
        self._random = Random(seed)
        told = [self._series(name, i, several) for name in ("c_total", "g", "b", "t") for i in range(12)]
        twins = [Told(t.name, t.labels, t.kind, t.samples[::2], "s9", t.shard + 1) for t in told[::5]]
        told = [
            Told(t.name, t.labels, t.kind, t.samples[1::2], "s0", t.shard) if i % 5 == 0 else t
            for i, t in enumerate(told)
        ]
        self.shards: Together = fed_shards([*told, *twins], 2)

    def _series(self, name: str, i: int, several: bool) -> Told:
        random, value, rows = self._random, 0, list[tuple[int, int, Any]]()
        offset = random.randrange(1_000, MINUTE - 1_000)
        whole, birth = random.random() < 0.5, T - 4 * HOUR
        for minute in range(65):
            for _ in range(2 if several and random.random() < 0.2 else 1):
                time = T - (64 - minute) * MINUTE - offset + random.randrange(-200, 200)
                value = 0 if random.random() < 0.05 else value + random.randrange(50)
                if random.random() > 0.07:
                    rows.append((time, birth, self._value(name, whole, value)))
        if random.random() < 0.2:
            del rows[len(rows) - 4 :]
            rows.append((rows[-1][0] + 30_000, birth, None))
        kind = Kind.COUNTER if name == "c_total" else Kind.GAUGE
        return Told(name, (("id", str(i)), ("rack", f"r{i % 3}")), kind, tuple(rows), f"s{i % 3}", i)

    def _value(self, name: str, whole: bool, value: int) -> Any:
        if name == "c_total":
            return value if whole else value + 0.25
        if name == "b":
            return value % 2 == 0
        if name == "t":
            return "text"
        odd = self._random.choice((math.nan, math.inf, 0.0)) if self._random.random() < 0.02 else None
        return self._random.gauss(100, 20) if odd is None else odd


def ask(text: str, store: Any, times: dict[str, Any]) -> PromqlResult:
    return query_store(text, MemoryStore(store), NOW, **times)


def compare(text: str, fleet: Together, times: dict[str, Any]) -> None:
    mine, plain = ask(text, fleet, times), ask(text, Plain(fleet), times)
    # partial results of shards do not tell which series fell silent
    told = tuple(info for info in plain.infos if not info.startswith(MISSING) or info in mine.infos)
    assert (mine.warnings, mine.infos) == (plain.warnings, told), text
    found = {tuple(labels.items()): dict(points) for labels, points in mine.series()}
    wanted = {tuple(labels.items()): dict(points) for labels, points in plain.series()}
    assert found.keys() == wanted.keys(), text
    for labels, points in wanted.items():
        assert found[labels].keys() == points.keys(), (text, labels)
        for time, value in points.items():
            assert same(found[labels][time], value), (text, labels, time, found[labels][time], value)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("seed", fixed_and_drawn((1,), "promql pushed", 1))
def test_answers_of_shards_are_those_of_samples(seed: int) -> None:
    fleet, random = Fleet(seed).shards, Random(seed)
    asked = list(product(WINDOWS, AGGREGATIONS, ("c_total", "g", "b")))
    for window, aggregation, name in random.sample(asked, 50):
        when = random.choice(list(TIMES))
        compare(aggregation.format(window.format(name)), fleet, TIMES[when])
    assert fleet.pushed > 35, fleet.refused


def values_of(text: str, store: Any, times: dict[str, Any], **options: Any) -> tuple[list[float], PromqlResult]:
    found = query_store(text, MemoryStore(store), NOW, **times, **options)
    return [value for _, points in found.series() for _, value in points], found


def shards_of(*told: tuple[str, list[tuple[int, Any]]], levels: Sequence[Level] = DEFAULT_LEVELS) -> Together:
    """One shard with series that began four hours ago."""
    return fed_shards(
        [
            Told(name, (("id", str(i)),), Kind.COUNTER, tuple((t, T - 4 * HOUR, v) for t, v in samples), "s0", 0)
            for i, (name, samples) in enumerate(told)
        ],
        1,
        levels,
    )


def test_coarse_levels_answer_exactly_where_their_statistics_do() -> None:
    samples = [(T - 30_000 - i * MINUTE, 600 - i) for i in range(600)]
    store = shards_of(("g", sorted(samples)))
    hourly = {"start_ms": T - 8 * HOUR, "end_ms": T, "step_ms": HOUR}
    for text, wanted in (
        ("max_over_time(g[1h])", [120 + 60 * i for i in range(9)]),
        ("min_over_time(g[1h])", [61 + 60 * i for i in range(9)]),
        ("sum(count_over_time(g[1h]))", [60] * 9),
        ("avg(avg_over_time(g[2h]))", [60.5, *(60.5 + 60 * i for i in range(1, 9))]),
        ("max(g)", [120 + 60 * i for i in range(9)]),
        ("g", [120 + 60 * i for i in range(9)]),
        ("sum(last_over_time(g[1h]))", [120 + 60 * i for i in range(9)]),
    ):
        found, answer = values_of(text, store, hourly)
        assert (found, answer.warnings) == (wanted, ()), text


def test_rates_of_coarse_levels_are_said_to_be_approximate() -> None:
    store = shards_of(("c_total", sorted((T - 30_000 - i * MINUTE, 60_000 - 60 * i) for i in range(600))))
    hourly = {"start_ms": T - 6 * HOUR, "end_ms": T, "step_ms": HOUR}
    found, answer = values_of("sum(increase(c_total[1h]))", store, hourly)
    assert found == pytest.approx([3600] * 7)
    (warning,) = answer.warnings
    assert "buckets of 15m" in warning
    assert "approximately" in warning
    assert values_of("topk(1, rate(c_total[1h]))", store, hourly)[0] == pytest.approx([1.0] * 7)


def test_exact_increases_on_request() -> None:
    samples = [(T - 30_000 - i * MINUTE, (20 - i) ** 2) for i in range(20)]
    store = shards_of(("c_total", sorted(samples)))
    now = {"end_ms": T + 5_000}
    assert values_of("sum(increase(c_total[3m]))", store, now)[0] == pytest.approx([114])
    for text in ("sum(increase(c_total[3m]))", "increase(c_total[3m])", "sum(rate(c_total[3m])) * 180"):
        assert values_of(text, store, now, exact_increase=True)[0] == pytest.approx([111]), text
    _, answer = values_of("sum(increase(c_total[90s]))", store, now, exact_increase=True)
    assert "whole minutes" in answer.warnings[0]


def test_several_samples_a_minute_are_exact_where_statistics_are() -> None:
    store = shards_of(("c_total", [(T - 50_000, 1), (T - 40_000, 5), (T - 20_000, 3)]))
    found, answer = values_of("sum(sum_over_time(c_total[5m]))", store, {"end_ms": T})
    assert (found, answer.warnings) == ([9], ())
    _, answer = values_of("sum(changes(c_total[5m]))", store, {"end_ms": T})
    assert "several samples in a bucket" in answer.warnings[0]


class Past(PlainStore):
    """A history: any time, and all samples."""

    def reach(self) -> StoreReach:
        return StoreReach(unbounded=True)

    def history(self) -> EngineStore:
        return self


@pytest.mark.parametrize("text", [
    "sum(rate(c_total[1m]))", "sum(changes(c_total[5m]))", "sum(sum_over_time(c_total[5m]))", "rate(c_total[1m])",
    "topk(1, irate(c_total[2m]))", "max(c_total offset 20s)", "count_over_time(c_total[90s])", "c_total offset 20s",
])  # fmt: skip
def test_several_samples_a_minute_are_read_from_the_history(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards compute what statistics give; the rest comes from the history, as far as that is not too much."""
    held = sorted((T - 5_000 - i * 15_000, 20_000 - i * i) for i in range(120))
    shards, past = MemoryStore(shards_of(("c_total", held))), Past().add("c_total", {"id": "0"}, held)
    auto = AutoStore(shards, lambda: past, ManualClock(NOW))

    def asked(store: EngineStore) -> PromqlResult:
        return query_store(text, store, NOW, start_ms=T - 20 * MINUTE, end_ms=T, step_ms=MINUTE)

    found, wanted = asked(auto), asked(past)
    assert found.values == pytest.approx(wanted.values, rel=1e-12)
    assert found.here.sum() == 21
    assert (found.warnings, wanted.warnings) == ((), ())
    monkeypatch.setattr("query_dsl.promql.store_samples.MAX_REREAD", 10)
    finer = parse_levels("15x240,60x60,300x48,900x96,3600x72")
    polled = asked(MemoryStore(shards_of(("c_total", held), levels=finer)))
    assert polled.values == pytest.approx(wanted.values, rel=1e-12)
    assert polled.warnings == ()
    by_statistics = text == "sum(sum_over_time(c_total[5m]))"
    assert (asked(auto).warnings == ()) == (asked(shards).warnings == ()) == by_statistics
