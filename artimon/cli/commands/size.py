"""`artimon size`: servers, processes, memory and disk that a number of series needs, with the reason of each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from artimon.cli.common import JsonOption, Panel

PANEL = Panel.MACHINE
app = typer.Typer()

# Figures of one sample and one series, each from a line of docs/benchmarks.md or docs/scaling.md.
SAMPLE_KAFKA_BYTES = 17.6  # transport.mixed: bytes of a batch a sample, compressed
SAMPLE_TABLE_BYTES = 1.5  # storage.mixed: mixed data, day files; the walk has 0.59
SAMPLE_OPEN_BYTES = 10.1  # storage: as appended, before compaction
TRANSPORT_CORES = 0.19e-6  # transport.mixed: agent, collector and broker, core-seconds a sample
SPARK_CORES = 1.34e-6  # pipeline.cpu: both queries, shards included
COMPACTION_CORES = 0.8e-6  # compaction: hour step and day step
SERIES_A_GIB = 115_900  # varstore: every bucket of every level filled
SPARE = 2.0  # cores for peaks and for catching up: an outage of B hours is made up in B hours
COPIES = 3  # of each partition in Kafka and each block in HDFS
SHARD_SERIES = 4_000_000  # of one process, 35 GiB: a restart reads a snapshot of that size
COLLECTOR_AGENTS = 1_000  # connections that one collector is known to serve
COLLECTORS = 2  # at least: one may be away
BROKERS = 3  # at least: three copies, two in sync
BROKER_WRITES = 60e6  # bytes a second on the disks of one broker
PARTITION_SAMPLES = 0.9e6  # a task of Spark decodes so many samples a second
PARTITIONS = 8  # at least: the default
EXECUTOR_CORES = 2
EXECUTOR_GIB = 3  # JVM 1, two Python workers 1 each
BATCH_SAMPLES = 1_500
AGENT_LANES = 4
LANE_BYTES = 11.3  # of the state in each append
CELL_SAMPLES = 1.25e6  # samples a second that the one compactor keeps up with


@dataclass(frozen=True, slots=True)
class Sizing:
    """One line of the answer: `amount` of `what`, and the reason."""

    what: str
    amount: float
    unit: str
    why: str

    @property
    def text(self) -> str:
        """The amount as people write it."""
        return f"{self.amount:,.1f}" if self.amount % 1 and self.amount < 100 else f"{round(self.amount):,}"


def size_cluster(
    series: float, hosts: int, period_s: float, keep_days: float, buffer_hours: float, replicas: int
) -> list[Sizing]:
    """Return what a cluster needs, in the order of a sample's path."""
    rate = series / period_s
    return [
        Sizing("samples a second", rate, "", f"{series:,.0f} series, each every {period_s:g} s"),
        *_transport(rate, hosts, buffer_hours),
        *_processing(rate, hosts),
        *_memory(series, replicas),
        *_storage(rate, keep_days),
    ]


def _transport(rate: float, hosts: int, buffer_hours: float) -> Iterator[Sizing]:
    written = COPIES * rate * SAMPLE_KAFKA_BYTES
    disk = written * buffer_hours * 3600
    yield Sizing(
        "agents", hosts, "", f"one a host; together {rate * TRANSPORT_CORES:.2g} cores with collectors and brokers"
    )
    collectors = max(COLLECTORS, math.ceil(hosts / COLLECTOR_AGENTS))
    yield Sizing("collectors", collectors, "", f"one for {COLLECTOR_AGENTS:,} agents, {COLLECTORS} at least")
    brokers = max(BROKERS, math.ceil(written / BROKER_WRITES))
    yield Sizing(
        "Kafka brokers",
        brokers,
        "",
        f"{written / 1e6:.1f} MB/s on their disks, {BROKER_WRITES / 1e6:.0f} each; {BROKERS} at least",
    )
    yield Sizing(
        "partitions",
        _partitions(rate),
        "",
        f"{PARTITION_SAMPLES:,.0f} samples/s each, twice for peaks; {PARTITIONS} at least",
    )
    yield Sizing(
        "Kafka disk", disk / 1e9, "GB", f"{COPIES} copies of {SAMPLE_KAFKA_BYTES} B a sample for {buffer_hours:g} h"
    )


def _processing(rate: float, hosts: int) -> Iterator[Sizing]:
    cores = SPARE * rate * SPARK_CORES
    executors = max(2, math.ceil(cores / EXECUTOR_CORES))
    yield Sizing(
        "Spark executors",
        executors,
        "",
        f"{cores:.2g} cores ({SPARK_CORES * 1e6:g} core-us a sample, twice), {EXECUTOR_CORES} each; 2 at least",
    )
    yield Sizing(
        "Spark memory", executors * EXECUTOR_GIB + 2, "GiB", f"{EXECUTOR_GIB} GiB an executor, 2 for the driver"
    )
    state = hosts * AGENT_LANES * LANE_BYTES
    yield Sizing("state of an append", state / 1e3, "kB", f"{hosts * AGENT_LANES:,} lanes, {LANE_BYTES} B each")
    cells = max(1, math.ceil(rate / CELL_SAMPLES))
    share = rate * COMPACTION_CORES / cells
    yield Sizing(
        "cells", cells, "", f"one compactor each, {share:.2g} of a core busy; {CELL_SAMPLES:,.0f} samples/s at most"
    )


def _memory(series: float, replicas: int) -> Iterator[Sizing]:
    held = series * replicas
    shards = max(replicas, math.ceil(held / SHARD_SERIES))
    memory = held / SERIES_A_GIB
    yield Sizing("shards", shards, "", f"{held:,.0f} series with {replicas} replicas, {SHARD_SERIES:,} each")
    yield Sizing(
        "shard memory",
        memory,
        "GiB",
        f"{SERIES_A_GIB:,} series a GiB, all buckets filled; {memory / shards:.1f} GiB each",
    )


def _storage(rate: float, keep_days: float) -> Iterator[Sizing]:
    day = rate * 86_400 * SAMPLE_TABLE_BYTES
    opened = 2 * 3600 * rate * SAMPLE_OPEN_BYTES
    total = COPIES * (day * keep_days + opened)
    yield Sizing(
        "HDFS disk",
        total / 1e12,
        "TB",
        f"{COPIES} copies of {day / 1e9:.1f} GB a day for {keep_days:g} days, {SAMPLE_TABLE_BYTES} B a sample",
    )


def _partitions(rate: float) -> int:
    return max(PARTITIONS, math.ceil(SPARE * rate / PARTITION_SAMPLES))


@app.command()
def size(
    series: Annotated[float, typer.Option(min=1, max=1e12, help="Series in all, such as 8e6.")],
    hosts: Annotated[int, typer.Option(min=1, max=10_000_000, help="Hosts with an agent.")],
    period: Annotated[float, typer.Option(min=1, max=86_400, help="Seconds between two polls.")] = 60.0,
    keep: Annotated[float, typer.Option(min=1, max=36_500, help="Days for which the raw table keeps samples.")] = 400.0,
    buffer: Annotated[
        float, typer.Option(min=1, max=1_000, help="Hours that Kafka holds; an outage of HDFS may last so long.")
    ] = 24.0,
    replicas: Annotated[int, typer.Option(min=1, max=8, help="Shards that hold each series.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Print what a cluster of this size needs, and why."""
    lines = size_cluster(series, hosts, period, keep, buffer, replicas)
    if as_json:
        print(json.dumps([asdict(line) for line in lines]))
        return
    width = max(len(line.what) for line in lines)
    for line in lines:
        print(f"{line.what:<{width}}  {line.text:>12} {line.unit:<4} {line.why}")
