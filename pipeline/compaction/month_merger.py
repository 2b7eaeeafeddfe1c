"""Month files: copies of the roll-ups of 1 d of closed months, and of closed tens of days of the open month."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from artimon.rawtable.delta import first_line
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollup_rows import ROLLUP_FILE_SCHEMA
from artimon.rawtable.rollups import MONTHS_FOLDER, RollupFile, existing_months, month_files, partition_of, span_of
from artimon.rawtable.schema import DAY_MS, TableError, period_of
from artimon.runtime import file_access as files
from pipeline.compaction.job import DigestMismatchError, delete_files
from pipeline.compaction.rollup_job import ALL_ROWS, ZSTD_LEVEL, counted_samples
from pipeline.compaction.sorted_files import SortedFileWriter

log = logging.getLogger(__name__)

OPEN_MS = 2 * DAY_MS
"""Time after which a month is closed: its last days have roll-ups then. Later ones cost another file, no error."""
ORDER = [(name, "ascending") for name in ("source", "series", "time", "birth")]


class MonthMerger:
    """Month files of the table of roll-ups at `uri`. `heartbeat` may raise."""

    def __init__(self, uri: str, heartbeat: Callable[[], None]) -> None:
        self._uri, self._heartbeat = uri, heartbeat
        self.sizes: dict[str, int] = {}
        """Path and bytes of each month file, as of the last update."""

    def update(self, live: Sequence[RollupFile], now_ms: int) -> Exception | None:
        """Write the missing files for the live roll-ups, and delete all others; return the last failure, which a later
        turn may cure. Raises OSError."""
        open_day = period_of(now_ms - OPEN_MS)
        wanted = {path: days for path, days in month_files(live).items() if _is_due(span_of(path), open_day)}
        existing = existing_months(self._uri)
        delete_files(self._uri, existing.keys() - wanted.keys())
        sizes = {path: size for path, size in existing.items() if path in wanted}
        problem: Exception | None = None
        for path in sorted(wanted.keys() - existing.keys()):
            self._heartbeat()
            try:
                sizes[path] = self._write(path, wanted[path])
            except (TableError, OSError) as error:
                log.warning("%s was not written and will be retried: %s", path, first_line(error))
                problem = error
        self.sizes = sizes
        return problem

    def _write(self, path: str, days: Sequence[RollupFile]) -> int:
        """Write a file under another name and rename it: readers never see a part of it. Return its bytes."""
        rows = pa.concat_tables([self._rows_of(file) for file in days]).sort_by(ORDER)
        partition = partition_of(DAY_MS, days[0].period, days[0].keep)
        output = SortedFileWriter(self._uri, MONTHS_FOLDER, partition, ALL_ROWS, prefix="month", level=ZSTD_LEVEL)
        try:
            output.add(rows)
            (made,) = output.close()
        finally:
            output.discard()
        expected, counted = pc.sum(rows.column("count")).as_py(), counted_samples(f"{self._uri}/{made.path}")
        if (made.rows, counted) != (sum(file.rows for file in days), expected):
            raise DigestMismatchError(f"{self._uri}/{made.path} counts {counted} of {expected} samples")
        files.rename_file(f"{self._uri}/{made.path}", f"{self._uri}/{path}")
        log.info("merged %d days with %d rows into %s, %d bytes", len(days), made.rows, path, made.size)
        return made.size

    def _rows_of(self, file: RollupFile) -> pa.Table:
        reader = GroupReader(f"{self._uri}/{file.path}", size=file.size)
        groups = [reader.read(group, ROLLUP_FILE_SCHEMA.names) for group in range(reader.groups)]
        return pa.concat_tables([ROLLUP_FILE_SCHEMA.empty_table(), *(one.cast(ROLLUP_FILE_SCHEMA) for one in groups)])


def _is_due(span: str, open_day: str) -> bool:
    """True for a month before that of `open_day`, and for ten days before it in the same month."""
    month = open_day[:7]
    return span < month if len(span) == len(month) else span[:7] == month and span < open_day[:9]
