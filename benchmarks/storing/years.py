"""Counters or gauges of many days, polled every minute, as compacted days of a separate raw table and for peers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.schema import FILE_SCHEMA, DataFile, day_of, folder_of, period_of
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from benchmarks.peers.series import Ints, PeerSeries
from benchmarks.storing.walk import JITTER_MS, POLL_MS
from pipeline.compaction.sorted_files import SortedFileWriter
from tests.compaction.builder import DAY_MS, Builder

OF_HOST = 100
"""Series of a host, which is a source."""
RACKS = 10
POLLS = DAY_MS // POLL_MS
GROWTH, STEP, GAUGE_START = 10, 5, 100_000
ALL_ROWS = 2**62


@dataclass(frozen=True, slots=True)
class Load:
    """Samples of `hosts` of OF_HOST series of one name. Values: (series, poll) in a file; times: (host, poll)."""

    name: str
    kind: Kind
    start_ms: int
    days: int
    hosts: int
    times_ms: Ints
    values: npt.NDArray[np.int32]

    @property
    def samples(self) -> int:
        return int(self.values.size)

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.days * DAY_MS

    def labels(self, host: int, n: int) -> dict[str, str]:
        """Return the labels of series `n` of a host."""
        return {"host": f"host-{host:04}", "rack": f"rack-{host % RACKS:02}", "n": f"{n:03}"}

    def peer_series(self) -> Iterator[PeerSeries]:
        """Yield the series in the form of the peers."""
        for host in range(self.hosts):
            for n in range(OF_HOST):
                values = self.values[host * OF_HOST + n].astype(np.float64)
                yield PeerSeries(self.name.replace(".", "_"), self.labels(host, n), self.times_ms[host], values, True)


def make_load(folder: Path, name: str, kind: Kind, start_ms: int, days: int, hosts: int, seed: int = 1) -> Load:
    """Make the values: counters grow by up to GROWTH - 1 a poll, gauges walk by up to STEP."""
    random = np.random.default_rng(seed)
    polls = days * POLLS
    phases = random.integers(100, POLL_MS - 1_000, hosts)
    times = start_ms + phases[:, None] + np.arange(polls) * POLL_MS + random.choice(JITTER_MS, (hosts, polls))
    folder.mkdir(parents=True, exist_ok=True)
    values = np.memmap(folder / f"{name}.values", np.int32, "w+", shape=(hosts * OF_HOST, polls))
    for host in range(hosts):
        shape = OF_HOST, polls
        if kind is Kind.COUNTER:
            steps = random.integers(0, GROWTH, shape, dtype=np.int32)
        else:
            steps = random.integers(-STEP, STEP + 1, shape, dtype=np.int32)
            steps[:, 0] = GAUGE_START
        values[host * OF_HOST : (host + 1) * OF_HOST] = np.cumsum(steps, axis=1, dtype=np.int32)
    return Load(name, kind, start_ms, days, hosts, times, values)


def fill(hdfs: str, load: Load, level: int = 0) -> None:
    """Announce the series and append each day as one file in the form of a compacted day; `level`: of zstd, 0: that of
    compaction."""
    builder, numbers, prints = Builder(hdfs), *_announce(hdfs, load)
    for day in range(load.days):
        begin = load.start_ms + day * DAY_MS
        period = day_of(period_of(begin))
        partition = {"period": period, "keep": "default"}
        writer = SortedFileWriter(
            builder.table.uri,
            folder_of(period, "default"),
            partition,
            ALL_ROWS,
            prefix=f"day-{uuid.uuid4().hex}",
            level=level,
        )
        for host in sorted(range(load.hosts), key=lambda one: numbers[one]):
            writer.add(_day_of_host(load, day, host, numbers[host], prints[host]))
        files: list[DataFile] = writer.close()
        builder.commit(files, begin + DAY_MS)


def _announce(hdfs: str, load: Load) -> tuple[list[int], list[Ints]]:
    """Return the number of each host's source, and the fingerprints of its series."""
    names = [f"load/host-{host:04}/0" for host in range(load.hosts)]
    ids = SourcesTable(hdfs).assign(names)
    blocks, prints = [], []
    for host, name in enumerate(names):
        texts = [canonical(load.name, load.labels(host, n)) for n in range(OF_HOST)]
        infos = tuple(SeriesInfo(text, ValueType.INTEGER, load.kind) for text in texts)
        blocks.append(SeriesBlock(name, 0, load.start_ms, infos))
        prints.append(np.array([signed(fingerprint(text)) for text in texts], np.int64))
    rows, refused = rows_of(blocks, ids)
    if refused or not SeriesTable(hdfs).add(rows, "bench", {0: 0}, {0: 1}):
        raise RuntimeError(f"{len(refused)} series were refused")
    return [ids[name] for name in names], prints


def _day_of_host(load: Load, day: int, host: int, number: int, prints: Ints) -> pa.Table:
    """Return the samples of a host on one day, in the order of files."""
    polls, order = slice(day * POLLS, (day + 1) * POLLS), np.argsort(prints)
    count = OF_HOST * POLLS
    stamp = FILE_SCHEMA.field("time").type
    values = load.values[host * OF_HOST : (host + 1) * OF_HOST, polls][order]
    birth_us = (load.start_ms - 7_000) * 1000
    columns = [
        pa.array(np.full(count, number, np.int32)),
        pa.array(np.repeat(prints[order], POLLS)),
        pa.array(np.tile(load.times_ms[host, polls] * 1000, OF_HOST)).view(stamp),
        pa.array(np.full(count, birth_us)).view(stamp),
        pa.array(np.zeros(count, bool)),
        pa.array(values.reshape(-1).astype(np.int64)),
        *(pa.nulls(count, FILE_SCHEMA.field(name).type) for name in ("double", "boolean", "string")),
    ]
    return pa.table(columns, schema=FILE_SCHEMA)
