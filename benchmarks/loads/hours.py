"""Closed hours with files as appends write them, so that the compactor has work during a measurement."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import numpy as np

from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples
from artimon.model.sample_columns import decode_columns
from artimon.rawtable.commit import RawTable
from artimon.rawtable.schema import DataFile, folder_of, period_of
from artimon.rawtable.table_state import TableTotals
from artimon.runtime import file_access as files
from benchmarks.loads.samples import MINUTE_MS, SERIES_A_SOURCE, Source
from pipeline.spark import raw_file as rows

HOUR_MS = 3_600_000
SOURCES_A_FILE = 500
FIRST_SOURCE = 1_000_000
"""First source number of this load; other loads use lower ones."""


def fill_hours(hdfs: str, now_ms: int, hours: int, minutes: int = 60) -> int:
    """Append the last `hours` whole hours before `now_ms`: two files of 750,000 rows a minute, 1.5 million series. All
    are one append, made before all others; return the number of rows."""
    start = now_ms // HOUR_MS * HOUR_MS - hours * HOUR_MS
    times = [start + hour * HOUR_MS + minute * MINUTE_MS for hour in range(hours) for minute in range(minutes)]
    table = RawTable(hdfs)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        written = [file for half in pool.map(partial(_files, hdfs, times), range(2)) for file in half]
    total = sum(file.rows for file in written)
    _, before = table.head()
    after = replace(before, append=before.append + 1, writer="hours", table="hours", totals=TableTotals(rows=total))
    table.append(written, before, after)
    return total


def _files(hdfs: str, times: Sequence[int], half: int) -> list[DataFile]:
    """Write the files of one half of the sources."""
    generator = np.random.default_rng(100 + half)
    first = half * SOURCES_A_FILE
    sources = [Source(number, generator, times[0]) for number in range(first, first + SOURCES_A_FILE)]
    return [_file(hdfs, sources, at) for at in times]


def _file(hdfs: str, sources: list[Source], at_ms: int) -> DataFile:
    parts = [_part(number, source, at_ms) for number, source in enumerate(sources)]
    data, count, statistics = rows.encode_file(parts)
    period = period_of(at_ms)
    path = f"{folder_of(period, 'default')}/append-1-{uuid.uuid4().hex}.parquet"
    files.write_file(f"{RawTable(hdfs).uri}/{path}", data)
    return DataFile(path, len(data), count, {"period": period, "keep": "default"}, statistics)


def _part(number: int, source: Source, at_ms: int) -> rows.SourceBatch:
    batch = encode_samples(
        BatchId("hours", 1, 0, 0),
        source.name,
        source.endpoint,
        source.birth_ms,
        at_ms,
        "default",
        source.poll(at_ms + number * 60_000 // SERIES_A_SOURCE),
    )
    return rows.SourceBatch(FIRST_SOURCE + number, at_ms, decode_columns(batch.header, batch.data))
