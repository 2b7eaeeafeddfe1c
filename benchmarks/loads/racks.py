"""One variable of many hosts, a sample a minute: `bench.temperature{host,rack}`; each source has hosts of all racks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from benchmarks.peers.series import PeerSeries, plain_name
from varstore.index.shard_limits import ShardLimits
from varstore.shard.shard import Shard

NAME = "bench.temperature"
MINUTE_MS = 60_000
SERIES_A_SOURCE = 1_000
RACKS = 100
BIRTH_AGE_MS = 86_400_000


class RackWorld:
    """`series` hosts; values are multiples of 0.001, so that every peer reads the same numbers from text."""

    def __init__(self, series: int, minutes: int, end_ms: int) -> None:
        self.series, self.minutes, self.end_ms = series, minutes, end_ms
        self._random = np.random.default_rng(7)

    def labels(self, i: int) -> dict[str, str]:
        """Labels of one series."""
        return {"host": f"host-{i:06}", "rack": f"r{i % RACKS:02}"}

    @cached_property
    def texts(self) -> list[str]:
        return [canonical(NAME, self.labels(i)) for i in range(self.series)]

    @cached_property
    def prints(self) -> npt.NDArray[np.uint64]:
        return np.array([fingerprint(text) for text in self.texts], np.uint64)

    @cached_property
    def values(self) -> npt.NDArray[np.float64]:
        """Values: (minutes, series)."""
        return np.round(self._random.normal(40.0, 8.0, (self.minutes, self.series)), 3)

    def means(self) -> npt.NDArray[np.float64]:
        """Means by rack: (racks, minutes), racks ascending."""
        return np.array([self.values[:, rack::RACKS].mean(axis=1) for rack in range(min(RACKS, self.series))])

    def peer_series(self) -> Iterator[PeerSeries]:
        """Yield the series in the form of the peers."""
        times = np.array([self.time_ms(minute) for minute in range(self.minutes)])
        for i in range(self.series):
            yield PeerSeries(plain_name(NAME), self.labels(i), times, self.values[:, i], False)

    def time_ms(self, minute: int) -> int:
        """Time of the sample of a minute: the middle of its bucket."""
        return self.end_ms - (self.minutes - minute) * MINUTE_MS + MINUTE_MS // 2

    def sources(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, first series and one past the last of each source."""
        for start in range(0, self.series, SERIES_A_SOURCE):
            yield f"bench/source-{start // SERIES_A_SOURCE}/0", start, min(start + SERIES_A_SOURCE, self.series)

    def blocks(self) -> Iterator[SeriesBlock]:
        """Yield the announcements of all series."""
        for source, start, stop in self.sources():
            infos = tuple(SeriesInfo(text, ValueType.DOUBLE, Kind.GAUGE) for text in self.texts[start:stop])
            yield SeriesBlock(source, 0, 1, infos)

    def poll(self, minute: int, offset: int, vshards: int, only: slice = slice(None)) -> FeedRange:
        """Return one minute of all sources (or of the slice `only`) as a range that begins at `offset`. Minutes after
        the last repeat its values."""
        time_ms, parts, entries = self.time_ms(minute), list[Samples](), list[FeedEntry]()
        for source, start, stop in list(self.sources())[only]:
            n = stop - start
            prints = self.prints[start:stop]
            values = self.values[min(minute, self.minutes - 1), start:stop]
            parts.append(
                Samples(
                    prints,
                    np.full(n, time_ms),
                    np.full(n, self.end_ms - BIRTH_AGE_MS),
                    np.full(n, ValueType.DOUBLE, np.uint8),
                    values.view(np.int64),
                )
            )
            at, digest = offset + len(entries), xxhash.xxh3_64_intdigest(prints.tobytes())
            entries.append(FeedEntry(at, time_ms + 500, BatchId("bench", 1, 0, at), source, time_ms, n, True, digest))
        until = offset + len(entries)
        return FeedRange("bench", 0, offset, until, tuple(entries), concat_samples(parts), vshards=vshards)


def loaded_shard(world: Any, capacity: int | None = None) -> Shard:
    """Return a shard that was announced and fed the world: a RackWorld, or an object with the same methods."""
    shard = Shard(capacity=capacity or world.series + 1_000, limits=ShardLimits(series_a_name=world.series + 1))
    for block in world.blocks():
        shard.announce(block)
    offset = 0
    for minute in range(world.minutes):
        range_ = world.poll(minute, offset, shard.vshards)
        offset = shard.feed(range_).next_offset
    return shard
