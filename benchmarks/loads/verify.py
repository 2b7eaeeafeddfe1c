"""Checks that table, shards and acks match the written samples, in bounded memory for any number of rows."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from kazoo.client import KazooClient

from artimon.rawtable.schema import FILE_SCHEMA, raw_uri, sources_uri
from artimon.rawtable.sources import read_sources
from artimon.runtime.partition_counts import ACKS_PATH
from benchmarks.loads.samples import Expected, number_of
from benchmarks.loads.world import SHARDS, World, WrongCounts
from pipeline.compaction.row_digest import RowDigest, digest_of

ROWS_AT_ONCE = 131_072
SAID_S = 60.0
"""Seconds in which a shard writes its health file at least once, even on a busy machine."""


def verify_table(hdfs: str, expected: Expected) -> None:
    """Check the number of rows, wrapping sums and the digest of all rows, in which a source is the number given by the
    load. Raises WrongCounts."""
    numbers = _numbers(hdfs)
    found, sums = RowDigest(), np.zeros(3, np.uint64)
    dataset = DeltaTable(raw_uri(hdfs)).to_pyarrow_dataset()
    scanner = dataset.scanner(
        columns=FILE_SCHEMA.names, batch_size=ROWS_AT_ONCE, batch_readahead=2, fragment_readahead=1
    )
    for batch in scanner.to_batches():
        if len(batch):
            found = found.plus(digest_of(_renumbered(batch, numbers)))
            sums += _sums(batch)
    wanted = (expected.samples, expected.series_sum, expected.time_sum, expected.integer_sum)
    if (found.rows, *map(int, sums)) != wanted:
        raise WrongCounts(f"table: rows and sums {found.rows, *map(int, sums)}, written {wanted}")
    if found != expected.digest:
        raise WrongCounts(f"table: digest of all rows {found}, written {expected.digest}")


def _numbers(hdfs: str) -> pa.Array:
    """Return the load's number of each source, indexed by its number in the table."""
    names = read_sources(sources_uri(hdfs))
    numbers = np.zeros(max(names) + 1, np.int32)
    for at, name in names.items():
        numbers[at] = number_of(name)
    return pa.array(numbers)


def _renumbered(batch: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
    columns = [pc.take(numbers, batch.column("source")), *(batch.column(name) for name in FILE_SCHEMA.names[1:])]
    return pa.record_batch(columns, schema=FILE_SCHEMA)


def _sums(batch: pa.RecordBatch) -> np.ndarray:
    series = batch.column("series").to_numpy().view(np.uint64)
    times = batch.column("time").cast(pa.int64()).to_numpy() // 1000
    integers = batch.column("integer").fill_null(0).to_numpy()
    columns = (series, times.view(np.uint64), integers.view(np.uint64))
    return np.array([column.sum(dtype=np.uint64) for column in columns], np.uint64)


def verify_shards(world: World, expected: Expected) -> None:
    """Check that every sample was applied once; wait for health files older than the offsets. Raises WrongCounts."""
    until = time.monotonic() + SAID_S
    while (found := _applied(world)) < expected.samples and time.monotonic() < until:
        time.sleep(0.5)
    if found != expected.samples:
        raise WrongCounts(f"shards applied {found} samples, written {expected.samples}")


def _applied(world: World) -> int:
    return sum(health.figures.get("applied", 0) for i in SHARDS if (health := world.health(f"shard-{i}")))


def verify_acks(world: World, expected: Expected) -> None:
    """Check that the published acks cover the whole topic. Raises WrongCounts."""
    client = KazooClient(world.zookeeper)
    client.start(timeout=10)
    try:
        names = client.get_children(ACKS_PATH)
        acks = [json.loads(client.get(f"{ACKS_PATH}/{name}")[0]) for name in names]
    finally:
        client.stop()
        client.close()
    until = {int(p): at["until"] for p, at in acks[0]["partitions"].items()}
    if any(until[p] != end for p, end in expected.ends.items()):
        raise WrongCounts(f"acks say {until}, the topic ends at {expected.ends}")
