"""The Delta table of series on HDFS, beside the raw table: every announcement.

Every commit that adds rows also stores the read positions of the topic: transaction
`artimon.series/<topic id>/<partition>`, whose version is the next offset. Adding rows is idempotent: a crash between
any two steps, or two concurrent drivers, are harmless. docs/formats/series.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import Transaction
from deltalake.exceptions import DeltaError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.announced_rows import PRUNED, SERIES_SCHEMA, merge_rows
from artimon.rawtable.delta import StartTime, first_line
from artimon.rawtable.merged_table import BASE, DELTA, MAX_FILE_AGE_S, MergedTable, MergeResult, check_columns
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import TableError, series_uri

log = logging.getLogger(__name__)

APP_ID = "artimon.series"
MAX_MERGES = 5
"""Merges of a removal: another one may be first, and have merged the same files."""


class SeriesTable(MergedTable):
    """The table of series. Used by one thread at a time."""

    pruned = PRUNED
    row_group = 4_096
    is_indexed = True

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK, probe: Failpoint = no_failpoint) -> None:
        super().__init__(series_uri(hdfs), SERIES_SCHEMA, clock, probe)

    # --- reads

    def positions(self, topic_id: str, partitions: int) -> dict[int, int]:
        """Return the next offset of each partition of the topic of announcements. Raises TableError, OSError."""
        table = self.refresh()
        return {p: table.transaction_version(app_id(topic_id, p)) or 0 for p in range(partitions)}

    # --- adding

    def add(self, rows: Any, topic_id: str, start: Mapping[int, int], until: Mapping[int, int]) -> bool:
        """Add rows of SERIES_SCHEMA, read from the topic between `start` and `until`. Returns False, without adding,
        if another driver advanced the positions. After a TableError or OSError the outcome is unknown, and the rows may
        be added again."""
        began = StartTime.of(self._clock)
        new = [self._write(merge_rows(rows).table, DELTA)] if len(rows) else []
        ids = [Transaction(app_id(topic_id, p), at) for p, at in sorted(until.items())]
        failure: Exception | None = None
        for _ in self.attempts():
            held = self.positions(topic_id, len(until))
            if failure is not None and held == until:
                self._discard(new)  # added by this commit, or by another driver that read the same range
                return True
            if held != start:
                self._delete(new)
                return False
            if new and began.age_s(self._clock) > MAX_FILE_AGE_S:
                raise TableError(f"{self.uri}: a file begun {began.age_s(self._clock):.0f} s ago is too old to commit")
            try:
                self.commit([file.action() for file in new], ids)
                return True
            except (DeltaError, OSError) as error:
                failure = error
                log.warning("series not added: %s; reading the table again", first_line(error))
        raise TableError(f"{self.uri}: announcements were not added: {failure}")

    # --- expiry

    def expire(
        self, is_kept: Callable[[pa.Table], Any], go_on: Callable[[], bool] = lambda: True
    ) -> MergeResult | None:
        """Once a day merge all files, and drop the rows for which the mask `is_kept` is False; None if nothing was
        merged. Raises TableError, OSError."""
        live = self.live()
        if not live or not self.is_aged(live):
            return None
        return self.merge(live, True, go_on, lambda rows: {BASE: rows.filter(pa.array(is_kept(rows)))})

    def remove(self, is_removed: Callable[[pa.Table], Any]) -> None:
        """Merge all files, and drop the rows for which the mask `is_removed` is True. Raises TableError, OSError."""
        for _ in range(MAX_MERGES):
            live = self.live()
            if not live or self.merge(live, True, split=lambda rows: {BASE: rows.filter(pa.array(~is_removed(rows)))}):
                return
        raise TableError(f"{self.uri}: other merges were first {MAX_MERGES} times")

    def _spans(self, passes: int) -> list[tuple[int, int]]:
        return split_fingerprints(passes)

    def _read_span(self, uri: str, low: int, high: int) -> pa.Table:
        return read_span(uri, low, high)

    def _combine(self, rows: pa.Table) -> tuple[pa.Table, tuple[int, ...]]:
        merged = merge_rows(rows)
        return merged.table, merged.clashes


def app_id(topic_id: str, partition: int) -> str:
    """Return the transaction id for the read position of a partition."""
    return f"{APP_ID}/{topic_id}/{partition}"


def split_fingerprints(passes: int) -> list[tuple[int, int]]:
    """Split all fingerprints into `passes` ranges [low, high] of nearly equal length."""
    step = 2**64 // max(1, passes)
    lows = [-(2**63) + step * n for n in range(max(1, passes))]
    return [(low, high - 1) for low, high in zip(lows, [*lows[1:], 2**63], strict=True)]


def read_span(uri: str, low: int, high: int) -> Any:
    """Read the rows of one file with fingerprints in [low, high]. Raises UnknownColumnsError, TableError, OSError."""
    reader = GroupReader(uri)
    check_columns(reader, uri, SERIES_SCHEMA)
    parts = []
    for group in range(reader.groups):
        least, most = reader.bounds(group, ["series"])["series"]
        if least <= high and most >= low:
            rows = reader.read(group, SERIES_SCHEMA.names)
            series = rows.column("series").to_numpy()
            parts.append(rows.filter(pa.array((series >= low) & (series <= high))))
    return pa.concat_tables([part.cast(SERIES_SCHEMA) for part in parts]) if parts else SERIES_SCHEMA.empty_table()
