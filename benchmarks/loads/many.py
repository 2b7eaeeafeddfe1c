"""Load of very many series with few samples, for selections by the index."""

from __future__ import annotations

import numpy as np
import xxhash

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from varstore.shard.shard import Shard

MINUTE_MS = 60_000
SERIES_A_SOURCE = 1_500
BLOCK = 1_000
NAMES = 100
MODULES = 150


class ManyNames:
    """`series` of `bench.vN{context,dc,host,module,rack}`, each source a host with 15 series of each of 100 names."""

    def __init__(self, series: int, end_ms: int) -> None:
        self.sources, self.end_ms = max(1, series // SERIES_A_SOURCE), end_ms
        self.series = self.sources * SERIES_A_SOURCE

    @property
    def of_module(self) -> int:
        """Number of series of module m7."""
        return sum(self._module(host, i) == 7 for host in range(self.sources) for i in range(SERIES_A_SOURCE))

    @staticmethod
    def _module(host: int, i: int) -> int:
        return (i // NAMES * 10 + host % 10) % MODULES

    def _texts(self, host: int) -> list[str]:
        labels = {"context": f"c{host % 20}", "dc": f"dc{host % 3}", "host": f"host-{host:05}", "rack": f"r{host % 40}"}
        return [
            canonical(f"bench.v{i % NAMES}", {**labels, "module": f"m{self._module(host, i)}"})
            for i in range(SERIES_A_SOURCE)
        ]

    def loaded(self, minutes: int) -> Shard:
        """Return a shard that knows all series and holds a sample a minute of those of module m7."""
        shard, offset = Shard(capacity=self.series + 10_000), 0
        for host in range(self.sources):
            texts, source = self._texts(host), f"bench/host-{host}/0"
            infos = [SeriesInfo(text, ValueType.INTEGER, Kind.GAUGE) for text in texts]
            for block in range(0, len(infos), BLOCK):
                shard.announce(SeriesBlock(source, block // BLOCK, 1, tuple(infos[block : block + BLOCK])))
            mine = [text for i, text in enumerate(texts) if self._module(host, i) == 7]
            if mine:
                prints = np.array([fingerprint(text) for text in mine], np.uint64)
                offset = self._feed(shard, source, prints, minutes, offset)
        return shard

    def _feed(self, shard: Shard, source: str, prints: np.ndarray, minutes: int, offset: int) -> int:
        entries, parts, n = [], [], len(prints)
        digest = xxhash.xxh3_64_intdigest(prints.tobytes())
        for minute in range(minutes):
            at, time_ms = offset + minute, self.end_ms - (minutes - minute) * MINUTE_MS + MINUTE_MS // 2
            cells = np.arange(n, dtype=np.int64) + minute
            types = np.full(n, ValueType.INTEGER, np.uint8)
            parts.append(Samples(prints, np.full(n, time_ms), np.full(n, self.end_ms - 10**8), types, cells))
            entries.append(FeedEntry(at, time_ms + 500, BatchId("b", 1, 0, at), source, time_ms, n, True, digest))
        until = offset + minutes
        return shard.feed(
            FeedRange("bench", 0, offset, until, tuple(entries), concat_samples(parts), vshards=shard.vshards)
        ).next_offset
