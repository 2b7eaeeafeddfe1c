"""Limits of a shard: refused series, the names reported for them, and their later acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.values import Kind, ValueType
from artimon.runtime.machine_memory import memory_limit
from tests.varstore.worlds import TestBatch, range_of, sweep
from varstore.index.shard_limits import (
    SERIES_PER_NAME,
    CapacityLimitError,
    RefusedCounts,
    ShardLimits,
    bytes_per_series,
    settle_capacity,
)
from varstore.shard.shard import Shard
from varstore.store.series_catalogue import EXPIRY_BATCH, SLICE_SLOTS

NOW, HOUR = 1_800_000_000_000, 3_600_000


class World:
    """A shard and a source that feeds it."""

    def __init__(self, shard: Shard, source: str = "s0") -> None:
        self.shard, self.source = shard, source
        self._next = 0
        self._version = 0

    def announce(self, *texts: str, append_ms: int = NOW, block: int = 0) -> None:
        """Announce one block."""
        self._version += 1
        infos = tuple(SeriesInfo(text, ValueType.INTEGER, Kind.GAUGE) for text in texts)
        self.shard.announce(SeriesBlock(self.source, block, self._version, infos), append_ms)

    def sample(self, *texts: str, at: int = NOW, value: int | float = 1) -> int:
        """Feed a batch with one sample of each series and return the number applied."""
        rows = [(fingerprint(text), at, 5, value) for text in texts]
        batch = TestBatch(BatchId("a", 1, 0, self._next), self.source, at, rows)
        log = [batch] * (self._next + 1)
        self._next += 1
        return self.shard.feed(range_of(log, self._next - 1, self._next)).applied

    def counts(self, at: int = NOW) -> dict[str, int]:
        """Return the samples of each series in the hour of `at`."""
        end = at + -at % HOUR
        buckets = self.shard.select(SelectRequest((Matcher(NAME, "!=", ""),), Grid(end, HOUR, 1), ("count",)))
        found = buckets.statistics["count"][:, 0].tolist()
        return {f"{s.name}{dict(s.labels)}": n for s, n in zip(buckets.series, found, strict=True)}


def series(name: str, numbers: Sequence[int]) -> list[str]:
    """Return canonical texts."""
    return [f'{name}{{n="{n}"}}' for n in numbers]


def test_a_limit_of_one_name_spares_the_others() -> None:
    """Samples before the announcement are deleted, later ones are refused; the name is reported."""
    world = World(Shard(capacity=100, limits=ShardLimits(series_a_name=3)))
    many = series("many", range(5))
    assert world.sample(*many, *series("few", range(3))) == 8
    world.announce(*many, *series("few", range(3)))
    status = world.shard.status()
    assert (status["series"], status["slots"], status["refused_names"]) == (6, 6, [("many", 2)])
    assert world.sample(*many, *series("few", range(3))) == 6
    assert world.shard.status()["refused"] == 2
    assert sum(world.counts().values()) == 12


def test_the_default_limit_of_one_name_follows_from_the_capacity() -> None:
    assert ShardLimits().of_capacity(4_000_000).series_a_name == 1_000_000
    assert ShardLimits().of_capacity(100).series_a_name == SERIES_PER_NAME
    assert ShardLimits(series_a_name=3).of_capacity(4_000_000).series_a_name == 3


def test_a_refused_series_is_accepted_by_the_next_announcement_with_room() -> None:
    """A series announced again without room is counted once."""
    world = World(Shard(capacity=100, limits=ShardLimits(series_a_name=2)))
    world.announce(*series("x", range(3)))
    world.announce(*series("x", range(3)))
    assert world.shard.status()["refused_names"] == [("x", 1)]
    assert world.sample('x{n="2"}') == 0
    later = NOW + 90 * HOUR
    world.announce('x{n="2"}', append_ms=later, block=1)
    assert world.sample("other{}", at=later) == 1  # time goes on, and the first two were silent
    sweep(world.shard)
    assert world.sample('x{n="2"}', at=later) == 0
    world.announce('x{n="2"}', append_ms=later, block=1)
    assert world.shard.status()["refused_names"] == []
    assert world.sample('x{n="2"}', at=later) == 1
    assert world.counts(later) == {"x{'n': '2'}": 1}


def test_announcements_beyond_the_capacity_are_refused() -> None:
    """Their names are reported as well."""
    world = World(Shard(capacity=10))
    world.announce(*series("x", range(12)))
    status = world.shard.status()
    assert (status["series"], status["refused_names"]) == (10, [("x", 2)])
    assert world.sample(*series("x", range(12))) == 10


def test_label_names_are_bounded() -> None:
    """Each label name costs an array; a series that would add too many is refused."""
    world = World(Shard(capacity=10, limits=ShardLimits(labels=2)))
    world.announce('x{a="1",b="1"}', 'x{a="2",c="1"}', 'x{b="1"}')
    assert world.shard.label_values(None) == ["a", "b"]
    assert world.shard.status()["refused_names"] == [("x", 1)]


def test_new_series_are_refused_while_memory_is_full() -> None:
    """New series are refused and known ones continue; with room again all are accepted."""
    shard = Shard(capacity=10_000, limits=ShardLimits(memory_bytes=1))
    world = World(shard)
    shard._catalogue.maintain()
    assert shard.status()["memory_full"] == (shard._store.bytes_used() > 1)
    known = shard._store.slots
    known.closed = False
    assert world.sample("a{}") == 1
    known.closed = True
    assert world.sample("a{}", "b{}") == 1
    shard.set_memory_limit(2**40)
    for _ in range(8):
        world.sample("a{}")
    assert not shard.status()["memory_full"]
    assert world.sample("a{}", "b{}") == 2
    assert shard.status()["memory_limit"] == 2**40


def test_a_capacity_beyond_the_memory_of_the_machine_is_refused() -> None:
    """The error states the memory needed and the capacity that would fit."""
    needs = 1_000_000 * bytes_per_series(DEFAULT_LEVELS)
    assert 8e9 < needs < 14e9
    assert settle_capacity(1_000_000, DEFAULT_LEVELS, needs) == 1_000_000
    with pytest.raises(CapacityLimitError, match=r"1000000 series needs up to .* GiB.*at most 500000, spread"):
        settle_capacity(1_000_000, DEFAULT_LEVELS, needs // 2)
    assert settle_capacity(0, DEFAULT_LEVELS, needs // 2) == 500_000
    assert settle_capacity(0, DEFAULT_LEVELS, 2 * needs) == 2_000_000
    assert settle_capacity(0, DEFAULT_LEVELS, 9 * needs) == 4_000_000
    assert 0 < memory_limit(1 << 30) <= (1 << 30)
    assert memory_limit() > 0


def test_cells_on_disk_need_no_memory() -> None:
    """A shard with a folder accepts as many series as its memory holds with the coarser levels on disk."""
    each = bytes_per_series(DEFAULT_LEVELS, on_disk=True)
    assert 1_200 < each < 1_500 < bytes_per_series(DEFAULT_LEVELS) / 7  # measured: varstore.density, 1,324
    assert settle_capacity(0, DEFAULT_LEVELS, 1_000_000 * each, on_disk=True) == 1_000_000
    assert settle_capacity(0, DEFAULT_LEVELS, 9_000_000 * each, on_disk=True) == 4_000_000
    with pytest.raises(CapacityLimitError, match=r"fewer shards on this one, or keep fewer buckets"):
        settle_capacity(1_000_001, DEFAULT_LEVELS, 1_000_000 * each, on_disk=True)
    with pytest.raises(CapacityLimitError, match=r"keep closed buckets on disk \(--data, --disk\)"):
        settle_capacity(1_000_000, DEFAULT_LEVELS, 1_000_000 * each)


def test_the_most_refused_names_are_kept() -> None:
    """A name refused more often than most is never lost, however many names there are."""
    refusals = RefusedCounts()
    for i in range(5_000):
        refusals.note(f"name{i}")
        refusals.note("worst")
    assert refusals.worst(1) == [("worst", 5_000)]
    assert len(refusals.worst(10**6)) <= 1_000
    refusals.uncount("worst")
    assert (refusals.worst(1), refusals.total) == ([("worst", 4_999)], 9_999)


def test_silent_series_are_forgotten() -> None:
    """Series without an announcement are forgotten eighty hours after their last sample; their slots and cells are
    freed."""
    world = World(Shard(capacity=100))
    world.announce("gone{}", "said{}", append_ms=NOW)
    assert world.sample("gone{}", "said{}", "never{}") == 3
    world.announce("said{}", append_ms=NOW + 50 * HOUR, block=1)
    for hours, left in ((79, ["gone", "said"]), (82, ["said"]), (135, [])):
        world.sample("clock{}", at=NOW + hours * HOUR)
        sweep(world.shard)
        assert world.shard.names() == left
    assert world.shard.status()["slots"] == 1
    assert world.shard.status()["expired"] == 3


def test_a_reused_slot_is_empty() -> None:
    """Cells, type, incarnations, end and labels of the slot are those of the new series, in every level."""
    world = World(Shard(capacity=1))
    world.announce("old{}")
    for value in (1, 2, 3):
        world.sample("old{}", value=value)
    later = NOW + 200 * HOUR
    assert world.sample("new{}", at=later, value=0.5) == 0  # refused, but time goes on
    sweep(world.shard)
    world.announce("new{}", append_ms=later)
    assert world.sample("new{}", at=later, value=0.5) == 1
    assert world.counts(later) == {"new{}": 1}
    for level in DEFAULT_LEVELS:
        end = NOW + -NOW % level.step_ms
        request = SelectRequest((Matcher(NAME, "=", "new"),), Grid(end, level.step_ms, 2), ("count",))
        buckets = world.shard.select(request)
        assert buckets.statistics["count"].sum() == 0
        assert buckets.series[0].type == ValueType.DOUBLE
        assert [life[1:3] for life in buckets.births.tolist()] == [(5, later)]


def test_a_silent_series_begins_anew_even_before_it_is_swept() -> None:
    """The result does not depend on the time of the sweep: the series may have another type, and begins a new
    incarnation."""
    world = World(Shard(capacity=10))
    world.shard._catalogue.maintain = lambda vshards=0: False  # type: ignore[method-assign]
    world.announce("x{}")
    world.sample("x{}", value=1)
    assert world.sample("x{}", at=NOW + 81 * HOUR, value=0.5) == 1
    (series_,) = world.shard.find(())
    assert series_.type == ValueType.DOUBLE
    births = world.shard._store.read_incarnations(np.flatnonzero(world.shard._store.slots.in_use))
    assert births["first_ms"].tolist() == [NOW + 81 * HOUR]


def test_retention_depends_on_append_time_alone() -> None:
    """Retention depends on append time alone: 80 hours for series, 150 for older incarnations, from the end of the
    hour."""
    shard = Shard(capacity=10)
    World(shard).sample("x{}", at=NOW + 1)
    store = shard._store
    assert (store.silent_ms(), store.incarnations.expired_ms) == (NOW - 79 * HOUR, NOW - 149 * HOUR)


def test_sweeping_takes_small_steps() -> None:
    """The number of slots per hold of the lock is bounded, however many are silent."""
    n = SLICE_SLOTS + 3 * EXPIRY_BATCH
    shard = Shard(capacity=n)
    world = World(shard)
    for first in range(0, n - 1, 5_000):
        world.sample(*series("x", range(first, min(first + 5_000, n - 1))))
    steps = []
    forget = shard._store.forget
    shard._store.forget = lambda slots: (steps.append(len(slots)), forget(slots))[1]  # type: ignore[method-assign,func-returns-value]
    world.sample("clock{}", at=NOW + 100 * HOUR)
    sweep(shard)
    assert (shard.status()["slots"], shard.status()["expired"]) == (1, n - 1)
    assert max(steps) <= EXPIRY_BATCH


def test_announcements_of_sources_that_are_gone_are_forgotten() -> None:
    """They are forgotten once a day, so that their number stays bounded; a source announced again is accepted again."""
    day = 24 * HOUR
    shard = Shard(capacity=100)
    for i in range(40):  # one source a day, which never returns
        now = NOW + i * day
        block = SeriesBlock(f"s{i}", 0, now, (SeriesInfo("a{}", ValueType.INTEGER, Kind.GAUGE),))
        assert shard.announce(block, now)
        assert not shard.announce(block, now)
        batch = TestBatch(BatchId("a", 1, 0, i), f"s{i}", now, [(fingerprint("a{}"), now, 5, 1)])
        shard.feed(range_of([batch] * (i + 1), i, i + 1))
        assert len(shard.ownership.blocks) <= 11
    assert shard.announce(SeriesBlock("s0", 0, NOW, block.series), now)
