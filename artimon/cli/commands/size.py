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

# Figures of one sample, series and session: tests compare them with docs/benchmarks.jsonl, docs/scaling.md has dates.
SAMPLE_KAFKA_BYTES = 13.1  # transport.mixed: bytes of a batch a sample, compressed
SAMPLE_TABLE_BYTES = 1.5  # storage.mixed: mixed data, day files; the walk has 0.59
SAMPLE_OPEN_BYTES = 10.1  # storage.walk@append: as appended, before compaction
TRANSPORT_CORES = 0.32e-6  # transport.mixed: agent, collector and broker, core-seconds a sample
SPARK_CORES = 2.34e-6  # pipeline.cpu: both queries, shards included
COMPACTION_CORES = 0.8e-6  # compaction: hour step and day step
SERIES_A_GIB = 810_700  # varstore.density: every bucket of every level filled, the coarser levels on disk
SHARD_GIB = 2  # of each process beside its series: libraries, queries, a snapshot in progress
CELL_DISK_BYTES = 7_500  # varstore.density@disk: of a series on the local disk, every bucket filled
SNAPSHOT_BYTES = 4_200  # varstore.restart@bytes: of a series in two snapshots, every bucket filled
SPARE = 2.0  # cores for peaks and for catching up: an outage of B hours is made up in B hours
COPIES = 3  # of each partition in Kafka and each block in HDFS
SHARD_SERIES = 4_000_000  # of one process: a restart reads a snapshot of that size, in four minutes
ENSEMBLE_SESSIONS = 30_000  # measured on an ensemble that had two cores in all, with its clients
ENSEMBLE_SERVERS = 3
COLLECTOR_AGENTS = 2_500  # half of the measured connections (fleet.collector.agents), as machines differ by two
COLLECTOR_BATCHES = 333  # a second: half of the measured ones
SPARE_COLLECTORS = 1  # of each cell: one may be away, and the others stay within their half
BROKERS = 3  # at least, in each cell: three copies, two in sync
BROKER_WRITES = 60e6  # bytes a second on the disks of one broker
PARTITION_SAMPLES = 0.85e6  # samples a second of a task of Spark: half of pipeline.cpu, as each query has one
PARTITIONS = 8  # at least, in each cell: the default
EXECUTORS = 2  # at least, in each cell
EXECUTOR_CORES = 2
DRIVER_GIB = 2
EXECUTOR_GIB = 3  # JVM 1, two Python workers 1 each
BATCH_SAMPLES = 1_500
AGENT_LANES = 4
LANE_BYTES = 11.3  # fleet.append.state: of the state in each append
CELL_SAMPLES = 1 / (SPARE * COMPACTION_CORES)  # samples a second that the one compactor keeps up with, and catches up


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


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hosts, the processes on each that count their own variables, and their samples a second."""

    hosts: int
    processes: int
    rate: float
    period_s: float

    @property
    def sessions(self) -> int:
        """Sessions of ZooKeeper. The servers of a site have some dozens more."""
        return self.hosts * (1 + self.processes)

    @property
    def sites(self) -> int:
        """Number of ensembles, and so of sites."""
        return math.ceil(self.sessions / ENSEMBLE_SESSIONS)

    @property
    def cells(self) -> int:
        """Number of compactors, at least one in each site."""
        return max(self.sites, math.ceil(self.rate / CELL_SAMPLES))

    @property
    def batches(self) -> float:
        """Batches a second: one of each process and agent each period, more if these have many variables."""
        return max(self.sessions / self.period_s, self.rate / BATCH_SAMPLES)


def size_cluster(
    series: float, hosts: int, processes: int, period_s: float, keep_days: float, buffer_hours: float, replicas: int
) -> list[Sizing]:
    """Return what a cluster needs, in the order of a sample's path."""
    fleet = Fleet(hosts, processes, series / period_s, period_s)
    return [
        Sizing("samples a second", fleet.rate, "", f"{series:,.0f} series, each every {period_s:g} s"),
        *_coordination(fleet),
        *_transport(fleet, buffer_hours),
        *_processing(fleet),
        *_memory(series * replicas, replicas, fleet.cells),
        *_storage(fleet.rate, keep_days),
    ]


def _coordination(fleet: Fleet) -> Iterator[Sizing]:
    yield Sizing(
        "ZooKeeper sessions", fleet.sessions, "", f"one of each agent and of {fleet.processes} processes a host"
    )
    yield Sizing(
        "sites",
        fleet.sites,
        "",
        f"one ensemble for {ENSEMBLE_SESSIONS:,} sessions; observers do not lower the number",
    )
    yield Sizing("ZooKeeper servers", fleet.sites * ENSEMBLE_SERVERS, "", f"{ENSEMBLE_SERVERS} a site, one may die")
    share = fleet.rate * COMPACTION_CORES / fleet.cells
    yield Sizing(
        "cells",
        fleet.cells,
        "",
        f"one a site at least; one compactor each, {share:.2g} of a core; {CELL_SAMPLES:,.0f} samples/s at most",
    )


def _transport(fleet: Fleet, buffer_hours: float) -> Iterator[Sizing]:
    rate, cells = fleet.rate, fleet.cells
    written = COPIES * rate * SAMPLE_KAFKA_BYTES
    disk = written * buffer_hours * 3600
    yield Sizing(
        "agents", fleet.hosts, "", f"one a host; {rate * TRANSPORT_CORES:.2g} cores with collectors and brokers"
    )
    share = max(fleet.hosts / COLLECTOR_AGENTS, fleet.batches / COLLECTOR_BATCHES)
    yield Sizing(
        "collectors",
        _spread(share, cells) + cells * SPARE_COLLECTORS,
        "",
        f"one for {COLLECTOR_AGENTS:,} agents or {COLLECTOR_BATCHES} batches/s, and {SPARE_COLLECTORS} more a cell",
    )
    yield Sizing(
        "Kafka brokers",
        _spread(written / BROKER_WRITES, cells, BROKERS),
        "",
        f"{written / 1e6:.1f} MB/s on their disks, {BROKER_WRITES / 1e6:.0f} each; {BROKERS} a cell at least",
    )
    yield Sizing(
        "partitions",
        _spread(SPARE * rate / PARTITION_SAMPLES, cells, PARTITIONS),
        "",
        f"{PARTITION_SAMPLES:,.0f} samples/s each, twice for peaks; {PARTITIONS} a cell at least",
    )
    yield Sizing(
        "Kafka disk", disk / 1e9, "GB", f"{COPIES} copies of {SAMPLE_KAFKA_BYTES} B a sample for {buffer_hours:g} h"
    )


def _processing(fleet: Fleet) -> Iterator[Sizing]:
    rate, cells = fleet.rate, fleet.cells
    cores = SPARE * rate * SPARK_CORES
    executors = _spread(cores / EXECUTOR_CORES, cells, EXECUTORS)
    yield Sizing(
        "Spark executors",
        executors,
        "",
        f"{cores:.2g} cores ({SPARK_CORES * 1e6:g} core-us a sample, twice), {EXECUTOR_CORES} each; {EXECUTORS} a cell",
    )
    yield Sizing(
        "Spark memory",
        executors * EXECUTOR_GIB + cells * DRIVER_GIB,
        "GiB",
        f"{EXECUTOR_GIB} GiB an executor, {DRIVER_GIB} for the driver of a cell",
    )
    lanes = math.ceil(fleet.hosts / cells) * AGENT_LANES
    yield Sizing("state of an append", lanes * LANE_BYTES / 1e3, "kB", f"{lanes:,} lanes a cell, {LANE_BYTES} B each")


def _memory(held: float, replicas: int, cells: int) -> Iterator[Sizing]:
    shards = _spread(held / SHARD_SERIES, cells, replicas)
    disk = CELL_DISK_BYTES + SNAPSHOT_BYTES
    memory = held / SERIES_A_GIB + shards * SHARD_GIB
    yield Sizing("shards", shards, "", f"{held:,.0f} series with {replicas} replicas, {SHARD_SERIES:,} each")
    yield Sizing(
        "shard memory",
        memory,
        "GiB",
        f"{SERIES_A_GIB:,} series a GiB, all buckets filled, {SHARD_GIB} GiB a shard; {memory / shards:.1f} GiB each",
    )
    yield Sizing("shard disk", held * disk / 1e9, "GB", f"{disk:,} B a series, all buckets filled: cells and snapshots")


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


def _spread(needed: float, places: int, least: int = 1) -> int:
    """Return the number over all places: equal numbers in each, `least` or more."""
    return places * max(least, math.ceil(needed / places))


@app.command()
def size(
    series: Annotated[float, typer.Option(min=1, max=1e12, help="Series in all, such as 8e6.")],
    hosts: Annotated[int, typer.Option(min=1, max=10_000_000, help="Hosts with an agent.")],
    processes: Annotated[
        int, typer.Option(min=0, max=10_000, help="Processes of a host that have a session of ZooKeeper (bookkeeper).")
    ] = 7,
    period: Annotated[float, typer.Option(min=1, max=86_400, help="Seconds between two polls.")] = 60.0,
    keep: Annotated[float, typer.Option(min=1, max=36_500, help="Days for which the raw table keeps samples.")] = 400.0,
    buffer: Annotated[
        float, typer.Option(min=1, max=1_000, help="Hours that Kafka holds; an outage of HDFS may last so long.")
    ] = 24.0,
    replicas: Annotated[int, typer.Option(min=1, max=8, help="Shards that hold each series.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Print what a cluster of this size needs, and why."""
    lines = size_cluster(series, hosts, processes, period, keep, buffer, replicas)
    if as_json:
        print(json.dumps([asdict(line) for line in lines]))
        return
    width = max(len(line.what) for line in lines)
    for line in lines:
        print(f"{line.what:<{width}}  {line.text:>12} {line.unit:<4} {line.why}")
