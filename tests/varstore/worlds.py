"""Series, batches and ranges for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.values import Kind, Value, ValueType
from varstore.shard.shard import Shard
from varstore.store.feed_groups import Partition

Row = tuple[int, int, int, Value | None]
TOPIC = "topic-one"


def text_of(series: int) -> str:
    """Return the canonical text of a test series."""
    return f'test.v{series}{{part="{series % 3}"}}'


def print_of(series: int) -> int:
    """Return its fingerprint."""
    return fingerprint(text_of(series))


@dataclass(frozen=True)
class TestBatch:
    """A batch as Kafka holds it."""

    __test__ = False

    id: BatchId
    source: str
    append_ms: int
    rows: Sequence[Row]

    def entry(self, offset: int, owned: bool = True) -> FeedEntry:
        """Return its entry in a feed range."""
        prints = self.samples().fingerprint
        rows = len(self.rows) if owned else 0
        hash_ = xxhash.xxh3_64_intdigest(prints.tobytes())
        return FeedEntry(offset, self.append_ms, self.id, self.source, self.append_ms, rows, owned, hash_)

    def samples(self) -> Samples:
        """Return its columns."""
        return Samples.of(self.rows)


def range_of(log: Sequence[TestBatch], start: int, until: int, partition: int = 0, topic: str = TOPIC) -> FeedRange:
    """Return the offsets [start, until) of a log."""
    part = log[start:until]
    entries = tuple(batch.entry(offset) for offset, batch in enumerate(part, start))
    return FeedRange(topic, partition, start, until, entries, concat_samples([b.samples() for b in part]))


def sweep(shard: Shard) -> None:
    """Finish the search for silent series in progress and make a whole one."""
    for _ in range(2):
        shard._catalogue._passed_ms = 0
        while shard._catalogue.maintain():
            pass


def positions(shard: Shard) -> dict[Partition, int]:
    """Return the next offset of every partition that was fed: the least of all groups."""
    groups = list(shard.ownership.groups)
    return {key: min(one.next_offset(key) for one in groups) for group in groups for key in group.positions}


def announce(shard: Shard, series: Sequence[int], source: str = "s0", version: int = 1, append_ms: int = 0) -> None:
    """Announce test series."""
    infos = tuple(SeriesInfo(text_of(i), ValueType.INTEGER, Kind.GAUGE) for i in series)
    shard.announce(SeriesBlock(source, 0, version, infos), append_ms)
