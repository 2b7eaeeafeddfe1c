"""Raw tables of known content, made as the raw query makes them: appends of sorted files that carry the state."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable import table_state as states
from artimon.rawtable.commit import RawTable
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.schema import FILE_SCHEMA, DataFile, folder_of, period_of
from artimon.rawtable.table_reader import read_raw
from artimon.rawtable.table_state import Increment, RawState, TableTotals
from artimon.runtime import file_access as files
from pipeline.compaction.row_digest import RowDigest, digest_of
from pipeline.compaction.row_order import sort_rows
from tests.raw_files import to_parquet

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_794_960_000_000
"""2026-11-18T00:00:00Z, the beginning of the days in which the tests append."""
TOPIC = "topic-1"
WRITERS = 8
LANE = LaneId("builder", 1, 0)
Row = tuple[int, int, int, Any]
"""(source, series, time in ms, value); the column follows from the value's type."""
Ledger = Counter[tuple[str, str]]
"""(keep, the whole row as text) -> how often."""


def file_table(given: Sequence[Row]) -> Any:
    """Rows as a data file holds them, in order."""
    values: dict[str, list[Any]] = {name: [] for name in ("integer", "double", "boolean", "string")}
    for _, _, _, value in given:
        kind = _column(value)
        for name, column in values.items():
            column.append(value if name == kind else None)
    times = [row[2] * 1000 for row in given]
    columns = [
        pa.array([row[0] for row in given], pa.int32()),
        pa.array([row[1] for row in given], pa.int64()),
        pa.array(times, pa.int64()).view(FILE_SCHEMA.field("time").type),
        pa.array([time - 1_000_000 for time in times], pa.int64()).view(FILE_SCHEMA.field("birth").type),
        pa.array([False] * len(given)),
        *(pa.array(values[name], FILE_SCHEMA.field(name).type) for name in values),
    ]
    return sort_rows(pa.table(columns, schema=FILE_SCHEMA))


def _column(value: Any) -> str:
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "double", str: "string"}
    return kinds.get(type(value), "")


class Builder:
    """One table on HDFS; `ledger` is what it must hold."""

    def __init__(self, hdfs: str, partitions: int = 1, copied: Builder | None = None) -> None:
        """`copied`: builder of the table whose files were copied to `hdfs`."""
        self.hdfs, self.partitions = hdfs, partitions
        self.table = RawTable(hdfs)
        self.state: RawState = copied.state if copied else RawState()
        self.ledger: Ledger = Counter(copied.ledger) if copied else Counter()
        if copied is None:
            gaps = states.close_gaps(RawState(), uuid.uuid4().hex, "cluster", "t", TOPIC, partitions, [])
            self._advance(gaps, [])

    def append(self, parts: Iterable[tuple[int, str, Sequence[Row]]], partition: int = 0) -> None:
        """One append of files: (append time in ms, class, rows)."""
        parts = list(parts)
        self.append_tables([(at, keep, file_table(given)) for at, keep, given in parts], partition)
        for at, keep, given in parts:
            self.ledger.update((keep, repr((at // HOUR_MS, *row))) for row in given)

    def append_tables(self, parts: Sequence[tuple[int, str, Any]], partition: int = 0) -> None:
        """As `append`, of tables; not in the ledger."""
        with ThreadPoolExecutor(WRITERS) as pool:  # each file waits for its disk
            new = list(pool.map(lambda part: self.write(*part), parts))
        newest = max((at for at, _, _ in parts), default=0)
        self.commit(new, newest, partition)

    def write(self, at_ms: int, keep: str, table: Any) -> DataFile:
        """A file that no commit names yet."""
        period = period_of(at_ms)
        data = to_parquet(table)
        path = f"{folder_of(period, keep)}/0-0-{uuid.uuid4().hex}.parquet"
        files.write_file(f"{self.table.uri}/{path}", data)
        statistics = statistics_of(table.combine_chunks())
        return DataFile(path, len(data), len(table), {"period": period, "keep": keep}, statistics)

    def commit(self, new: Sequence[DataFile], newest_ms: int, partition: int = 0) -> None:
        """An append of these files; its state follows the one before."""
        lane = LaneId("builder", 1, partition)
        until = self.state.until()[partition] + 1
        seen = LaneRanges()
        seen.add(lane, until)
        counts = TableTotals(rows=sum(file.rows for file in new))
        step = Increment({partition: until}, {partition: seen}, {lane: newest_ms}, counts, newest_ms)
        self._advance(states.advance(self.state, "builder", step), new)

    def settle(self, until_ms: int) -> None:
        """Appends without rows, after which nothing before `until_ms` is missing in any partition."""
        for partition in range(self.partitions):
            self.commit([], until_ms, partition)

    def _advance(self, after: RawState, new: Sequence[DataFile]) -> None:
        self.table.append(new, self.state, after)
        self.state = after


def settled_builder(builder: Builder) -> Builder:
    """With one closed hour of three files."""
    builder.append([(START_MS + n * 60_000, "default", [(1, k, START_MS + n, n) for k in range(6)]) for n in range(3)])
    builder.settle(START_MS + HOUR_MS)
    return builder


def held(hdfs_table: str) -> Ledger:
    """Return the rows of the newest version. Only in hour partitions is the hour that of the ledger."""
    found: Ledger = Counter()
    for row in read_raw(hdfs_table).to_pylist():
        given = [row[name] for name in ("integer", "double", "boolean", "string") if row[name] is not None]
        time_ms = round(row["time"].timestamp() * 1000)
        value = given[0] if given else None
        found[row["keep"], repr((row["source"], row["series"], time_ms, value))] += 1
    return found


def expected(ledger: Ledger) -> Ledger:
    """A ledger without the hours of the appends."""
    plain: Ledger = Counter()
    for (keep, text), times in ledger.items():
        plain[keep, "(" + text.split(", ", 1)[1]] += times
    return plain


def walk(
    sources: int, series: int, polls: int, start_ms: int, step: int = 5, seed: int = 1, polled: int = 60_000
) -> list[Any]:
    """One table a poll: integers that walk at random, poll times that jitter by 5 ms, for all sources."""
    random = np.random.default_rng(seed)
    names = np.sort(random.integers(-(2**63), 2**63 - 1, (sources, series)), axis=1)
    values = random.integers(0, 10**6, (sources, series))
    phases = random.integers(0, polled, sources)
    tables = []
    for poll in range(polls):
        values = values + random.integers(-step, step + 1, (sources, series))
        times = start_ms + poll * polled + phases + random.integers(-5, 6, sources)
        tables.append(_poll(names, values, times))
    return tables


def _poll(names: Any, values: Any, times: Any) -> Any:
    sources, series = names.shape
    count = sources * series
    stamps = np.repeat(times * 1000, series)
    columns = [
        pa.array(np.repeat(np.arange(1, sources + 1, dtype=np.int32), series)),
        pa.array(names.reshape(-1)),
        pa.array(stamps).view(FILE_SCHEMA.field("time").type),
        pa.array(np.full(count, START_MS * 1000 - 7_000_000)).view(FILE_SCHEMA.field("birth").type),
        pa.array(np.zeros(count, bool)),
        pa.array(values.reshape(-1)),
        *(pa.nulls(count, FILE_SCHEMA.field(name).type) for name in ("double", "boolean", "string")),
    ]
    return pa.table(columns, schema=FILE_SCHEMA)


def table_digest(uri: str) -> RowDigest:
    """Of every row of the newest version: what compaction must not change."""
    whole = RowDigest()
    for batch in DeltaTable(uri).to_pyarrow_dataset().to_batches(columns=FILE_SCHEMA.names, batch_size=16_384):
        whole = whole.plus(digest_of(batch))
    return whole
