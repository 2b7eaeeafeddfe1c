"""Daily expiry of sources and series: those without rows in the raw table are removed from the tables of sources and of
series."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from artimon.model.clock import Clock
from artimon.model.failpoints import Failpoint
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollups import RollupFile, rollups_uri
from artimon.rawtable.schema import DAY_MS, LiveFile, raw_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from artimon.rawtable.table_state import FORGET_MS
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.plan import is_known_period

log = logging.getLogger(__name__)

LATEST_MS = FORGET_MS + DAY_MS
"""Rows of a series are appended at most this long after its last announcement: it is repeated daily, and older batches
are refused."""
FOR_EVER = 2**62


class SourceUsage:
    """Time until which each source has rows in the raw table or in roll-ups. Each file is read once: its sources never
    change."""

    def __init__(self, config: CompactorConfig, heartbeat: Callable[[], None]) -> None:
        """`heartbeat`: called often; it may raise."""
        self._config, self._heartbeat = config, heartbeat
        self._until_ms = np.zeros(0, np.int64)
        self._read: set[str] = set()

    def update(self, raw: Sequence[LiveFile], rollups: Sequence[RollupFile]) -> None:
        """Take in the files that were not read yet. Raises TableError, OSError."""
        files = [
            *((f"{raw_uri(self._config.hdfs)}/{file.path}", self._raw_until_ms(file)) for file in raw),
            *((f"{rollups_uri(self._config.hdfs)}/{file.path}", self._rollup_until_ms(file)) for file in rollups),
        ]
        for uri, until_ms in files:
            if uri not in self._read:
                self._heartbeat()
                self._add(sources_of(uri), until_ms)
        self._read = {uri for uri, _ in files}

    def is_used(self, ids: Any, now_ms: int) -> Any:
        """Return the mask of the sources with rows that have not expired."""
        known = ids < len(self._until_ms)
        used = np.zeros(len(ids), np.bool_)
        used[known] = self._until_ms[ids[known]] > now_ms
        return used

    def _raw_until_ms(self, file: LiveFile) -> int:
        return self._config.keeping.until_ms(file) if is_known_period(file.period) else FOR_EVER

    def _rollup_until_ms(self, file: RollupFile) -> int:
        known = is_known_period(file.period)
        return self._config.rollups.until_ms(file.level_ms, file.period, file.keep) if known else FOR_EVER

    def _add(self, ids: Any, until_ms: int) -> None:
        if len(ids) and (more := int(ids.max()) + 1 - len(self._until_ms)) > 0:
            self._until_ms = np.concatenate([self._until_ms, np.zeros(max(more, len(self._until_ms)), np.int64)])
        self._until_ms[ids] = np.maximum(self._until_ms[ids], until_ms)


def sources_of(uri: str) -> Any:
    """Return the numbers of the sources of a data file (numpy). Row groups are sorted by source, so most have one or
    two, which their statistics name."""
    reader = GroupReader(uri)
    found = [np.zeros(0, np.int64)]
    for group in range(reader.groups):
        low, high = reader.bounds(group, ["source"]).get("source", (0, FOR_EVER))
        if high - low <= 1:
            found.append(np.array([low, high], np.int64))
        else:
            column = reader.read(group, ["source"]).column("source")
            found.append(column.unique().cast(pa.int64()).to_numpy(zero_copy_only=False))
    return np.unique(np.concatenate(found))


class SourceExpiry:
    """Expiry of the tables of sources and of series, once a day for each. Used by one thread."""

    def __init__(self, config: CompactorConfig, clock: Clock, probe: Failpoint, heartbeat: Callable[[], None]) -> None:
        self._config, self._heartbeat = config, heartbeat
        self._sources, self._series = SourcesTable(config.hdfs, clock, probe), SeriesTable(config.hdfs, clock, probe)
        self._usage = SourceUsage(config, heartbeat)

    def run_due(
        self, raw: Callable[[], Sequence[LiveFile]], rollups: Callable[[], Sequence[RollupFile]], now_ms: int
    ) -> None:
        """Run what is due. `raw` and `rollups` read the live files of the newest versions. Raises TableError,
        OSError."""
        if self._sources.is_aged(self._sources.live()):
            self._usage.update(raw(), rollups())
            merged = self._sources.expire(lambda ids: self._usage.is_used(ids, now_ms), self._go_on)
            log.info("sources: %s", merged)
        if self._series.is_aged(self._series.live()):
            merged = self._series.expire(self._series_kept(now_ms), self._go_on)
            log.info("series: %s", merged)

    def _series_kept(self, now_ms: int) -> Callable[[Any], Any]:
        """Return the mask of rows to keep: their source exists, and some of their samples may have not expired."""
        known = self._sources.ids()
        newest = int(known.max()) if len(known) else 0
        exists = np.zeros(newest + 1, np.bool_)
        exists[known] = True
        since_us = self._config.since_ms(now_ms - LATEST_MS) * 1000

        def kept(rows: Any) -> Any:
            source, seen = (rows.column(name).cast(pa.int64()).to_numpy() for name in ("source", "last_seen"))
            young = source > newest  # assigned after `known` was read
            return (seen >= since_us) & (young | exists[np.minimum(source, newest)])

        return kept

    def _go_on(self) -> bool:
        self._heartbeat()
        return True
