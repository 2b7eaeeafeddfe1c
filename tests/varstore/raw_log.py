"""A log in the raw table, as the raw query writes it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from artimon.model.ranges import LaneRanges
from artimon.rawtable import table_state as states
from artimon.rawtable.commit import RawTable
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.schema import FILE_SCHEMA, DataFile, folder_of, period_of
from artimon.rawtable.sources import SourcesTable
from artimon.rawtable.table_state import Increment, LogGap, RawState, TableTotals
from artimon.runtime import file_access as files
from pipeline.compaction.row_order import sort_rows
from tests.raw_files import to_parquet
from tests.varstore.keeping import Log
from tests.varstore.worlds import TOPIC, TestBatch

KINDS: dict[type, str] = {bool: "boolean", int: "integer", float: "double", str: "string"}


def file_table(batches: Sequence[tuple[int, TestBatch]]) -> Any:
    """Return rows of (number of the source, batch) as a data file holds them."""
    found = [
        (source, print_, time, birth, time > batch.append_ms + 60_000, value)
        for source, batch in batches
        for print_, time, birth, value in batch.rows
    ]
    stamp = FILE_SCHEMA.field("time").type
    columns = [
        pa.array([row[0] for row in found], pa.int32()),
        pa.array([row[1] - 2**64 if row[1] >= 2**63 else row[1] for row in found], pa.int64()),
        pa.array([row[2] * 1000 for row in found], pa.int64()).view(stamp),
        pa.array([row[3] * 1000 for row in found], pa.int64()).view(stamp),
        pa.array([row[4] for row in found], pa.bool_()),
        *(
            pa.array(
                [row[5] if KINDS.get(type(row[5])) == name else None for row in found], FILE_SCHEMA.field(name).type
            )
            for name in ("integer", "double", "boolean", "string")
        ),
    ]
    return sort_rows(pa.table(columns, schema=FILE_SCHEMA))


class RawLog:
    """The raw table of a log; `store` advances it to given offsets."""

    def __init__(self, hdfs: str, partitions: int = 2, topic_id: str = TOPIC) -> None:
        self._raw, self._sources = RawTable(hdfs), SourcesTable(hdfs)
        self.state = RawState()
        self._advance(
            states.close_gaps(RawState(), uuid.uuid4().hex, "cluster", "t", topic_id, partitions, [], None, 0), []
        )

    def store(self, log: Log | Mapping[int, Sequence[TestBatch]], until: Mapping[int, int]) -> None:
        """Append the new batches of each partition."""
        partitions = log.partitions if isinstance(log, Log) else log
        at = self.state.until()
        seen: dict[int, LaneRanges] = {}
        by_period: dict[str, list[tuple[int, TestBatch]]] = {}
        last_ms, newest = dict(self.state.last_ms), 0
        new_batches = {partition: partitions[partition][at[partition] : end] for partition, end in until.items()}
        numbers = self._sources.assign(sorted({batch.source for some in new_batches.values() for batch in some}))
        for partition, some in new_batches.items():
            known = self.state.lanes.get(partition, LaneRanges()).copy()
            seen[partition] = LaneRanges()
            for batch in some:
                newest = max(newest, batch.append_ms)
                lane = batch.id.lane_id
                last_ms[lane] = max(last_ms.get(lane, 0), batch.append_ms)
                seen[partition].add(lane, batch.id.sequence)
                if known.add(lane, batch.id.sequence):
                    by_period.setdefault(period_of(batch.append_ms), []).append((numbers[batch.source], batch))
        new = [self._write(period, batches) for period, batches in by_period.items() if any(b.rows for _, b in batches)]
        step = Increment(dict(until), seen, last_ms, TableTotals(), newest)
        self._advance(states.advance(self.state, "test", step), new)

    def lose(self, spans: Mapping[int, tuple[int, int]]) -> None:
        """Append a version that names the offsets [start, end) of each partition lost."""
        gaps = [LogGap("lost", partition, *span) for partition, span in spans.items()]
        current = self.state.topics[-1]
        named = (*(self.state.cluster, self.state.topic, current.topic_id), len(current.until), gaps, None, 0)
        self._advance(states.close_gaps(self.state, "test", *named), [])

    def _write(self, period: str, batches: Sequence[tuple[int, TestBatch]]) -> DataFile:
        table = file_table(batches)
        data = to_parquet(table)
        path = f"{folder_of(period, 'default')}/{uuid.uuid4().hex}.parquet"
        files.write_file(f"{self._raw.uri}/{path}", data)
        partition = {"period": period, "keep": "default"}
        return DataFile(path, len(data), len(table), partition, statistics_of(table.combine_chunks()))

    def _advance(self, after: RawState, new: Sequence[DataFile]) -> None:
        self._raw.append(new, self.state, after)
        self.state = after
