"""Samples of a test script in a shard, where its points fit the finest level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xxhash

from artimon.compute.aggregate import Aggregate, AggregateRequest
from artimon.compute.packed_samples import is_stale
from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import Grid
from artimon.model.labels import canonical
from artimon.model.select import Buckets, SelectRequest
from artimon.model.values import Kind, ValueType
from query_dsl.promql.scripted_samples import LiteralSamples
from query_dsl.stores.engine_store import EngineStore, ForwardingStore, MemoryStore
from varstore.shard.shard import Shard

MINUTE = 60_000
BASE_MS = 1_800_000_000_000
SPAN_MS = 55 * MINUTE
"""Longest range of samples that a shard takes: those of an hour."""


@dataclass(frozen=True, slots=True)
class EarlyShard(ForwardingStore):
    """Shard whose samples are BASE_MS later than those that are asked for: scripts begin in 1970."""

    store: EngineStore

    def select(self, request: SelectRequest) -> Buckets:
        found = self.store.select(replace(request, grid=_later(request.grid)))
        statistics = dict(found.statistics)
        if "last_time" in statistics:
            statistics["last_time"] = statistics["last_time"] - BASE_MS
        ended_ms = np.where(found.ended_ms > 0, found.ended_ms - BASE_MS, 0)
        return replace(found, grid=request.grid, statistics=statistics, ended_ms=ended_ms)

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        return self.store.aggregate(replace(request, grid=_later(request.grid)))


def _later(grid: Grid) -> Grid:
    return Grid(grid.end_ms + BASE_MS, grid.step_ms, grid.n)


def shard_of(samples: LiteralSamples) -> EngineStore | None:
    """Return a shard that holds the samples; None if they do not fit: one a minute, within an hour, of floats."""
    rows: dict[int, list[tuple[int, int, int, float | None]]] = {}
    infos = []
    times = [time for points in samples.series.values() for time in points]
    if samples.native or not times or min(times) < 0 or max(times) - min(times) > SPAN_MS:
        return None
    for key, points in samples.series.items():
        labels = dict(key)
        name = labels.pop("__name__", "")
        ordered = sorted(points.items())
        stale = is_stale(np.array([value for _, value in ordered]))
        minutes = [-(-time // MINUTE) for time, _ in ordered]
        if not name or stale[:-1].any() or len(set(minutes)) < len(minutes):
            return None
        text = canonical(name, labels)
        infos.append(SeriesInfo(text, ValueType.DOUBLE, Kind.UNKNOWN))
        for minute, (time, value), over in zip(minutes, ordered, stale.tolist(), strict=True):
            rows.setdefault(minute, []).append(
                (fingerprint(text), BASE_MS + time, BASE_MS - MINUTE, None if over else value)
            )
    shard = Shard("script", capacity=max(64, 2 * len(infos)))
    shard.announce(SeriesBlock("script", 0, 1, tuple(infos)))
    for offset, (minute, batch) in enumerate(sorted(rows.items())):
        held, append_ms = Samples.of(batch), BASE_MS + minute * MINUTE + 1_000
        digest = xxhash.xxh3_64_intdigest(held.fingerprint.tobytes())
        entry = FeedEntry(
            offset, append_ms, BatchId("script", 1, 0, offset), "script", append_ms, len(batch), True, digest
        )
        shard.feed(FeedRange("t", 0, offset, offset + 1, (entry,), concat_samples([held]), vshards=shard.vshards))
    return EarlyShard(MemoryStore(shard))
