"""Logs of several partitions, feeders that follow a shard's groups, and the expected results, for tests of groups,
images, snapshots and refills."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from artimon.compute.statistics import STATISTICS
from artimon.model.batch import BatchId
from artimon.model.feed_codec import FeedAnswer, FeedRange, concat_samples
from artimon.model.grid import Grid
from artimon.model.hash_routing import virtual_shard
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.values import Value
from artimon.model.vshards import from_hex, mask_of
from tests.varstore.reference import LEVELS, Reference, end_of
from tests.varstore.test_model import check_bucket, same
from tests.varstore.worlds import TOPIC, Row, TestBatch, announce, print_of
from varstore.cells.cell_file import CellFile
from varstore.shard.shard import Shard

START = 1_800_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
SOURCES = ("s0", "s1", "s2")
SERIES = {"s0": (0, 2, 3, 5, 6), "s1": (1, 4, 5), "s2": (5, 7)}
"""Series 5 belongs to all three sources, as after a poller moved."""
VSHARDS = {source: virtual_shard(source) for source in SOURCES}
ALL = mask_of(VSHARDS.values())


@dataclass
class Log:
    """Batches by partition; each source has a partition of its own, except for two that share one."""

    partitions: dict[int, list[TestBatch]] = field(default_factory=lambda: {0: [], 1: []})
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))

    def add(self, source: str, append_ms: int, rows: Sequence[Row]) -> None:
        """Append one batch."""
        id_ = BatchId("agent", 7, SOURCES.index(source), self.numbers[source])
        self.numbers[source] += 1
        self.partitions[SOURCES.index(source) % 2].append(TestBatch(id_, source, append_ms, rows))

    def repeat(self, partition: int, at: int, append_ms: int) -> None:
        """Append a batch of the partition a second time."""
        batch = self.partitions[partition][at]
        self.partitions[partition].append(TestBatch(batch.id, batch.source, append_ms, batch.rows))

    @property
    def head_ms(self) -> int:
        """Return the greatest append time."""
        return max((b.append_ms for p in self.partitions.values() for b in p), default=START)

    def expect(self, source: str) -> Reference:
        """Return the content that a plain store would hold of a source."""
        reference, seen = Reference(), set()
        for batch in self.partitions[SOURCES.index(source) % 2]:
            if batch.source == source and batch.id not in seen:
                seen.add(batch.id)
                rows = [((0, print_), *rest) for print_, *rest in batch.rows]
                reference.apply(batch.append_ms, rows)  # type: ignore[arg-type]
        return reference


def value_of(series: int, draw: random.Random) -> Value | None:
    """Return a value that a series may have; None: it ended."""
    if draw.random() < 0.05:
        return None
    chosen: Value
    match series:
        case 2:
            chosen = draw.choice([draw.uniform(-5, 5), float("nan"), float("inf"), -0.0])
        case 3:
            chosen = draw.choice(["a", "b", "ünïcødé ✓", ""])
        case 4:
            chosen = draw.random() < 0.5
        case 6:
            changing: list[Value] = [draw.randint(-9, 9), draw.uniform(-9, 9), "text"]
            chosen = draw.choice(changing)
        case _:
            chosen = draw.choice([draw.randint(-5, 5), 2**63 - 1, -(2**63)])
    return chosen


def random_log(draw: random.Random, batches: int, steps: Sequence[int] = (0, 1_000, 60_000, 61_000, 2 * HOUR)) -> Log:
    """Return batches whose append times mostly rise; some are late, some in the future, some repeated."""
    log, append = Log(), START
    for _ in range(batches):
        append += draw.choice([*steps, -5_000])
        source = draw.choice(SOURCES)
        partition = log.partitions[SOURCES.index(source) % 2]
        if partition and draw.random() < 0.15:
            log.repeat(SOURCES.index(source) % 2, draw.randrange(len(partition)), append)
            continue
        rows: list[Row] = []
        for series in draw.choices(SERIES[source], k=draw.randint(1, 5)):
            age = draw.choice([draw.randint(-2, 120_000), -61_000, -60_000, 0, 30 * MINUTE, 20 * HOUR, 90 * HOUR])
            birth = START - draw.randint(0, 2) * HOUR
            rows.append((print_of(series), append - age, birth, value_of(series, draw)))
        log.add(source, append, rows)
    return log


def empty(owned: int = ALL, capacity: int = 1_000, cell_file: CellFile | None = None) -> Shard:
    """Return a shard that holds these virtual shards in one group, and knows all series."""
    shard = Shard(capacity=capacity, owned=frozenset(), cell_file=cell_file)
    if owned:
        shard.adopt(owned)
        announce_sources(shard)
    return shard


def announce_sources(shard: Shard) -> None:
    """Announce all series once more."""
    for source, series in SERIES.items():
        announce(shard, series, source)


def position(group: dict[str, object], partition: int) -> int:
    """Return the next offset of a group."""
    for topic, number, offset in group["positions"]:  # type: ignore[attr-defined]
        if (topic, number) == (TOPIC, partition):
            return int(offset)
    return 0


def range_for(log: Log, vshards: int, partition: int, start: int, until: int) -> FeedRange:
    """Return the range of the offsets [start, until) for a group."""
    part = log.partitions[partition][start:until]
    owned = [bool(vshards >> VSHARDS[batch.source] & 1) for batch in part]
    entries = tuple(b.entry(at, own) for at, (b, own) in enumerate(zip(part, owned, strict=True), start))
    samples = [batch.samples() for batch, own in zip(part, owned, strict=True) if own]
    return FeedRange(TOPIC, partition, start, start + len(part), entries, concat_samples(samples), vshards)


def feed(shard: Shard, log: Log, group: dict[str, object], partition: int, most: int = 10**9) -> FeedAnswer:
    """Feed a group at most this many of the batches that it lacks."""
    at = position(group, partition)
    return shard.feed(range_for(log, from_hex(str(group["vshards"])), partition, at, at + most))


def catch_up(shard: Shard, log: Log) -> None:
    """Feed every group to the end; groups may merge meanwhile."""
    for _ in range(20):
        behind = [
            (group, partition)
            for group in shard.groups()
            for partition, batches in log.partitions.items()
            if position(group, partition) < len(batches)
        ]
        if not behind:
            return
        feed(shard, log, *behind[0])
    raise AssertionError("groups are still behind after 20 feeds")


def check(shard: Shard, log: Log, vshards: int | None = None) -> None:
    """Check every bucket of the levels, for every series of every virtual shard held, against a plain store."""
    held = shard.vshards if vshards is None else vshards
    for source in SOURCES:
        if held >> VSHARDS[source] & 1:
            _check_source(shard, log, source)


def _check_source(shard: Shard, log: Log, source: str) -> None:
    reference = log.expect(source)
    for level in LEVELS:
        step, count, spare = level
        last = end_of(log.head_ms, step)
        grid = Grid(last + step, step, count + spare - 1)  # from the oldest bucket that is still taken to the next one
        asked = SelectRequest((Matcher(NAME, "prefix", "test."),), grid, STATISTICS, vshards=mask_of([VSHARDS[source]]))
        buckets = shard.select(asked)
        assert len(buckets.series) == len(SERIES[source])
        floor = min(end_of(log.head_ms, s) - (c + p - 2) * s for s, c, p in LEVELS)
        for row, series in enumerate(buckets.series):
            for i, end in enumerate(grid.ends().tolist()):
                got = {name: int(buckets.statistics[name][row, i]) for name in STATISTICS}
                check_bucket(got, reference.bucket((0, series.fingerprint), level, end), buckets.strings)
            assert buckets.ended_ms[row] == reference.ended((0, series.fingerprint))
            if (0, series.fingerprint) in reference.series:
                _check_lives(buckets, row, reference, floor)


def _check_lives(buckets: object, row: int, reference: Reference, floor: int) -> None:
    series = buckets.series[row].fingerprint  # type: ignore[attr-defined]
    lives = buckets.births[buckets.births["row"] == row].tolist()  # type: ignore[attr-defined]
    got = [life for i, life in enumerate(lives) if life[3] > floor or i == len(lives) - 1]
    known = reference.lives((0, series))
    expected = [life for i, life in enumerate(known) if life[2] > floor or i == len(known) - 1]
    assert [life[1:4] for life in got] == [life[:3] for life in expected]
    strings = buckets.strings  # type: ignore[attr-defined]
    assert all(same(life[4], e[3], strings) for life, e in zip(got, expected, strict=True))


def masks(sources: Iterable[str]) -> int:
    """Return the mask of the virtual shards of some sources."""
    return mask_of(VSHARDS[source] for source in sources)
