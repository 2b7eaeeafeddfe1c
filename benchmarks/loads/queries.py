"""Data of `benchmarks.query`: counters and volumes of many hosts for an hour, a metric of few hosts for three days."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import xxhash

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from benchmarks.loads.racks import BIRTH_AGE_MS, MINUTE_MS, RACKS, SERIES_A_SOURCE
from benchmarks.peers.series import PeerSeries, plain_name

DAYS_MINUTES = 3 * 24 * 60
LONG_SERIES = 1_000
VOLUMES = 10_000
GROWTH = 1_500
"""Growth of counters in each minute after the last one."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Metric:
    """One metric. `values`: (minutes, series) whole numbers, the newest minute last."""

    name: str
    kind: Kind
    values: Ints

    @property
    def series(self) -> int:
        return int(self.values.shape[1])

    @property
    def minutes(self) -> int:
        return int(self.values.shape[0])

    def labels(self, i: int) -> dict[str, str]:
        """Labels of one series."""
        return {"host": f"host-{i:06}", "rack": f"r{i % RACKS:02}"}

    @cached_property
    def texts(self) -> list[str]:
        return [canonical(self.name, self.labels(i)) for i in range(self.series)]

    @cached_property
    def prints(self) -> npt.NDArray[np.uint64]:
        return np.array([fingerprint(text) for text in self.texts], np.uint64)


class QueryWorld:
    """`bench.requests`: `series` counters for `minutes`; `disk.size`, `disk.used`: VOLUMES each; `bench.long`: counters
    for three days. Whole numbers, so that every peer reads the same from text."""

    def __init__(self, series: int, minutes: int, end_ms: int, *, long: bool = True) -> None:
        self.series, self.end_ms, self.hour = series, end_ms, minutes
        self.minutes = DAYS_MINUTES if long else minutes
        self._long = long

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        random = np.random.default_rng(11)
        volumes = min(VOLUMES, self.series)
        sizes = np.broadcast_to(random.integers(10**9, 10**12, volumes), (self.hour, volumes))
        used = (sizes * random.uniform(0.2, 0.9, (self.hour, volumes))).astype(np.int64)
        found = (
            Metric("bench.requests", Kind.COUNTER, _counters(random, self.hour, self.series)),
            Metric("disk.size", Kind.GAUGE, np.ascontiguousarray(sizes)),
            Metric("disk.used", Kind.GAUGE, used),
        )
        if not self._long:
            return found
        return (*found, Metric("bench.long", Kind.COUNTER, _counters(random, DAYS_MINUTES, LONG_SERIES)))

    def metric(self, name: str) -> Metric:
        """Return the metric with this name."""
        return next(one for one in self.metrics if one.name == name)

    def time_ms(self, minute: int) -> int:
        """Time of the sample of a minute: the middle of its bucket."""
        return self.end_ms - (self.minutes - minute) * MINUTE_MS + MINUTE_MS // 2

    def peer_series(self) -> Iterator[PeerSeries]:
        """Yield the series in the form of the peers."""
        for metric in self.metrics:
            first = self.minutes - metric.minutes
            times = np.array([self.time_ms(first + minute) for minute in range(metric.minutes)])
            for i in range(metric.series):
                values = np.ascontiguousarray(metric.values[:, i]).astype(np.float64)
                yield PeerSeries(plain_name(metric.name), metric.labels(i), times, values, True)

    def sources(self) -> Iterator[tuple[str, Metric, int, int]]:
        """Yield name, metric, first series and one past the last of each source."""
        for metric in self.metrics:
            for start in range(0, metric.series, SERIES_A_SOURCE):
                stop = min(start + SERIES_A_SOURCE, metric.series)
                yield f"bench/{metric.name}-{start // SERIES_A_SOURCE}/0", metric, start, stop

    def blocks(self) -> Iterator[SeriesBlock]:
        """Yield the announcements of all series."""
        for source, metric, start, stop in self.sources():
            infos = tuple(SeriesInfo(text, ValueType.INTEGER, metric.kind) for text in metric.texts[start:stop])
            yield SeriesBlock(source, 0, 1, infos)

    def poll(self, minute: int, offset: int, vshards: int, only: Sequence[int] | None = None) -> FeedRange:
        """Return one minute of all sources (or of those with the numbers `only`) as a range that begins at `offset`.
        After the last minute counters grow by GROWTH."""
        time_ms, parts, entries = self.time_ms(minute), list[Samples](), list[FeedEntry]()
        sources = list(self.sources())
        for source, metric, start, stop in sources if only is None else [sources[i] for i in only]:
            row = minute - self.minutes + metric.minutes
            if row < 0:
                continue
            n, prints = stop - start, metric.prints[start:stop]
            cells = np.ascontiguousarray(metric.values[min(row, metric.minutes - 1), start:stop])
            if metric.kind is Kind.COUNTER:
                cells = cells + GROWTH * max(0, row - metric.minutes + 1)
            births = np.full(n, self.end_ms - 4 * BIRTH_AGE_MS)
            parts.append(Samples(prints, np.full(n, time_ms), births, np.full(n, ValueType.INTEGER, np.uint8), cells))
            at, digest = offset + len(entries), xxhash.xxh3_64_intdigest(prints.tobytes())
            entries.append(FeedEntry(at, time_ms + 500, BatchId("bench", 1, 0, at), source, time_ms, n, True, digest))
        until = offset + len(entries)
        return FeedRange("bench", 0, offset, until, tuple(entries), concat_samples(parts), vshards=vshards)


def _counters(random: np.random.Generator, minutes: int, series: int) -> Ints:
    """Return (minutes, series) counters that grow by 1,000 to 2,000 a minute."""
    steps = random.integers(1_000, 2_000, (minutes, series))
    steps[0] += random.integers(0, 10**6, series)
    return np.cumsum(steps, axis=0, dtype=np.int64)
