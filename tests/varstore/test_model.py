"""Buckets of a shard compared with a plain slow store, for random batches in random ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.compute.statistics import STATISTICS
from artimon.model.batch import BatchId
from artimon.model.grid import Grid
from artimon.model.hash_routing import virtual_shard
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest
from artimon.model.values import Value, ValueType, cell_to_double
from tests.varstore.reference import LEVELS, Reference, Sample, end_of, greatest, last_of, least
from tests.varstore.worlds import Row, TestBatch, announce, print_of, range_of, sweep
from varstore.shard.shard import Shard

START = 1_800_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
SERIES = 7  # 0, 1: integers; 2: doubles; 3: strings; 4: booleans; 5: of all sources; 6: changes its type
SOURCES = ("s0", "s129", "s1")
"""The first two are of one virtual shard, the third of another, so that there are twins."""
MINE = ([0, 2, 3, 5, 6], [1, 4, 5], [3, 5, 6])
HOMES = sorted({virtual_shard(source) for source in SOURCES})

ages = st.one_of(
    st.integers(-2, 120_000),
    st.sampled_from([-61_000, -60_001, -60_000, -1, 0, 1]),
    st.integers(0, 100).map(lambda n: n * MINUTE),
    st.integers(0, 80).map(lambda n: n * HOUR + 7),
)
doubles = st.one_of(st.integers(-50, 50).map(float), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 2.0**60]))
integers = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]))


def value_of(series: int) -> st.SearchStrategy[Value]:
    """Return values that a test series may have."""
    match series:
        case 2:
            return doubles
        case 3:
            return st.sampled_from(["a", "b", "ünïcødé ✓", ""])
        case 4:
            return st.booleans()
        case 6:
            return st.one_of(st.integers(-(2**60), 2**60), doubles, st.just("text"))
        case _:
            return integers


@st.composite
def row_lists(draw: st.DrawFn, source: int, append: int) -> list[Row]:
    """Return rows of one batch: some series of a source, sometimes one of them twice, sometimes only its end."""
    mine = MINE[source]
    found: list[Row] = []
    for series in draw(st.lists(st.sampled_from(mine), min_size=1, max_size=6)):
        time = append - draw(ages)
        birth = START - draw(st.integers(0, 3)) * HOUR
        value = draw(st.one_of(value_of(series), value_of(series), value_of(series), st.none()))
        found.append((print_of(series), time, birth, value))
    return found


@st.composite
def logs(draw: st.DrawFn, hours: int = 1_000) -> list[TestBatch]:
    """Return a partition: batches whose append times mostly rise, sometimes by jumps, some of them repeated."""
    log: list[TestBatch] = []
    append = START
    for number in range(draw(st.integers(1, 12))):
        append += draw(
            st.sampled_from([0, 1, 1_000, 60_000, 61_000, 3 * HOUR, 30 * HOUR, 79 * HOUR, 90 * HOUR, -5_000])
        )
        append = min(append, START + hours * HOUR)
        if log and draw(st.integers(0, 5)) == 0:
            again = draw(st.sampled_from(log))
            log.append(TestBatch(again.id, again.source, append, again.rows))
            continue
        source = draw(st.integers(0, len(SOURCES) - 1))
        id = BatchId("agent", 7, source, number)
        log.append(TestBatch(id, SOURCES[source], append, draw(row_lists(source, append))))
    return log


@st.composite
def cuts(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Return ranges of a feeder that lost its position: overlapping, repeated, sometimes beyond the end of the
    shard."""
    sent = draw(st.lists(st.tuples(st.integers(0, length), st.integers(0, length)), max_size=6))
    return [(min(pair), max(pair)) for pair in sent]


def feed_all(shard: Shard, log: list[TestBatch], sent: list[tuple[int, int]]) -> None:
    """Send every range; then follow the shard's answers to the end of the log."""
    at = 0
    for start, until in sent:
        answer = shard.feed(range_of(log, start, until))
        expected = at if start > at else max(at, until)
        assert answer.next_offset == expected
        at = answer.next_offset
    assert shard.feed(range_of(log, at, len(log))).next_offset == max(at, len(log))


def announce_all(shard: Shard, version: int, append_ms: int) -> None:
    """Announce every series in both virtual shards."""
    for source in ("s0", "s1"):
        announce(shard, range(SERIES), source, version, append_ms)


def expect(log: list[TestBatch]) -> Reference:
    """Return the reference, which sees each identity once; a series of two virtual shards is two series to it."""
    reference, seen = Reference(), set()
    for batch in log:
        if batch.id not in seen:
            seen.add(batch.id)
            home = virtual_shard(batch.source)
            rows = [((home, print_), time, birth, value) for print_, time, birth, value in batch.rows]
            reference.apply(batch.append_ms, rows)
    return reference


def grids(reference: Reference) -> Iterator[tuple[tuple[int, int, int], Grid]]:
    """Return a grid of every row that each level may hold at the head, and as many rows before."""
    for level in LEVELS:
        step, count, spare = level
        yield level, Grid(end_of(reference.head, step) + 2 * step, step, 2 * (count + spare))


def same(cell: int, value: Value, strings: tuple[str, ...]) -> bool:
    """Return True if a cell holds that value."""
    if isinstance(value, str):
        return strings[cell] == value
    if isinstance(value, float):
        held = cell_to_double(cell)
        return held == value or (math.isnan(held) and math.isnan(value))
    return cell == int(value)


def check_bucket(got: dict[str, int], samples: list[Sample], strings: tuple[str, ...]) -> None:
    """Check one cell of one series."""
    assert got["count"] == len(samples)
    if not samples:
        assert not any(got.values())
        return
    last = last_of(samples)
    assert got["last_time"] == last.time
    assert same(got["last"], last.value, strings)
    if isinstance(last.value, str):
        return
    if isinstance(last.value, float):
        values = [float(s.value) for s in samples]
        assert same(got["min"], least(values), ()), (got, values)
        assert same(got["max"], greatest(values), ()), (got, values)
        total = cell_to_double(got["sum"])
        with np.errstate(all="ignore"):
            assert np.isclose(total, np.sum(values), rtol=1e-9, atol=1e-9 * 2.0**60, equal_nan=True)
        return
    whole = [int(s.value) for s in samples]
    assert (got["min"], got["max"]) == (min(whole), max(whole))
    assert (got["sum"] - sum(whole)) % 2**64 == 0


def check_lives(buckets: Buckets, row: int, home: int, reference: Reference) -> None:
    """Check incarnations, end and newest sample of one series."""
    print_ = (home, buckets.series[row].fingerprint)
    assert buckets.ended_ms[row] == reference.ended(print_)
    got = buckets.births[buckets.births["row"] == row]
    if print_ not in reference.series:
        assert not len(got)
        return
    expected = reference.lives(print_)
    assert [tuple(life)[1:4] for life in got.tolist()] == [life[:3] for life in expected]
    assert all(same(int(life["last"]), e[3], buckets.strings) for life, e in zip(got, expected, strict=True))
    assert buckets.newest_ms[row] == reference.newest(print_)


def check(shard: Shard, reference: Reference) -> None:
    """Check every bucket of every series at every level. Forgotten series are announced again, and empty."""
    sweep(shard)
    announce_all(shard, 2, reference.head)
    reference.forget_silent([*reference.series, *reference.ends])
    types = {int: ValueType.INTEGER, float: ValueType.DOUBLE, bool: ValueType.BOOLEAN, str: ValueType.STRING}
    for level, grid in grids(reference):
        for home in HOMES:
            request = SelectRequest((Matcher(NAME, "prefix", "test."),), grid, STATISTICS, vshards=1 << home)
            buckets = shard.select(request)
            assert len(buckets.series) == SERIES
            ends = grid.ends().tolist()
            for row, series in enumerate(buckets.series):
                print_ = (home, series.fingerprint)
                if print_ in reference.series:
                    assert series.type == types[reference.series[print_].type]
                check_lives(buckets, row, home, reference)
                for i, end in enumerate(ends):
                    got = {name: int(buckets.statistics[name][row, i]) for name in STATISTICS}
                    check_bucket(got, reference.bucket(print_, level, end), buckets.strings)
    status = shard.status()
    counts = [status[name] for name in ("applied", "late", "future", "conflicts")]
    assert counts == [reference.applied, reference.late, reference.future, reference.conflicts]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_buckets_equal_those_of_the_plain_store(data: st.DataObject) -> None:
    """Late, repeated, reborn and ended series and conflicting types, in any ranges, and again after a restart."""
    log = data.draw(logs())
    reference = expect(log)
    for _ in range(2):  # the second shard is the first one restarted: empty, fed from 0 in other pieces
        shard = Shard(capacity=1_000)
        if data.draw(st.booleans()):
            announce_all(shard, 1, data.draw(st.sampled_from([0, START, START + 60 * HOUR])))
        feed_all(shard, log, data.draw(cuts(len(log))))
        check(shard, reference)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_order_of_partitions_does_not_matter(data: st.DataObject) -> None:
    """Batches in any order (as from partitions that lag by less than the retention) give the buckets of the original
    order."""
    log = [batch for batch in data.draw(logs(5)) if not any(row[0] == print_of(6) for row in batch.rows)]
    unique = list({batch.id: batch for batch in reversed(log)}.values())
    shuffled = data.draw(st.permutations(unique))
    shard = Shard(capacity=1_000)
    announce_all(shard, 1, START)
    if shuffled:
        shard.feed(range_of(shuffled, 0, len(shuffled)))
    check(shard, expect(unique[::-1]))


@pytest.mark.parametrize("run_rows", [1, 3])
def test_small_runs_and_a_small_cache_give_the_same(monkeypatch: pytest.MonkeyPatch, run_rows: int) -> None:
    """The grouping of batches into runs and the evictions of the cache do not change the result."""
    monkeypatch.setattr("varstore.store.run_builder.RUN_ROWS", run_rows)
    log = [
        TestBatch(BatchId("a", 1, 0, i), SOURCES[i % 3], START + i * MINUTE, [(print_of(j), START + i * MINUTE, 0, i)])
        for i in range(20)
        for j in [i % 3]
    ]
    shard = Shard(capacity=1_000)
    shard._run_builder._cached_rows = 1
    announce_all(shard, 1, START)
    shard.feed(range_of(log, 0, 20))
    check(shard, expect(log))
