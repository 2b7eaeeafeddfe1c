"""Kafka to HDFS and to the shards, from a prefilled topic.

`pipeline`: samples a second with both paths, until the table's commit and every shard's offsets equal the end of the
topic; `pipeline.cpu`, `pipeline.memory`: usage of that run; `pipeline.raw`: the raw path alone.
`pipeline@buckets_stopped` and `pipeline@raw_stopped`: the rate of one path while the other is stopped for a minute
(SIGSTOP to the shards or the DataNode).
`pipeline.executors@N`: the cost of a sample with N executors of one core each, JVMs of their own on this machine.
Each run is verified against the written samples: count, sums and digest of all rows, the number applied by the shards,
the published acks, and every bucket and statistic of every level of one source in twenty, which is announced after
the measurement. The check for duplicates and the acks run as usual. A part that fails becomes a failed line; the
others continue.
`lag.hdfs.*`: see benchmarks.lag; it takes a little more than --minutes, 30 by default. The rest takes about ten.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
from hdfs_native import Client

from artimon.runtime.file_access import split_uri
from artimon.stack.stack import Stack
from benchmarks import lag
from benchmarks.common import Parts, emit
from benchmarks.limits import emit_limit, encoded_rate
from benchmarks.loads.samples import SERIES_A_SOURCE, Expected, capacity_of_two, fill
from benchmarks.loads.values import verify_values
from benchmarks.loads.verify import verify_acks, verify_shards, verify_table
from benchmarks.loads.world import (
    SHARDS,
    Memory,
    Processes,
    World,
    WrongCounts,
    cpu_s,
    pipeline_processes,
    start_shards,
    start_spark,
    stop,
    wait_for,
)

PARTITIONS = 8
SERVERS = ("zookeeper", "kafka", "namenode", "datanode")
START_S = 900.0
"""Limit in seconds of the start of Spark and of its first tasks on a busy machine; not part of any figure."""
MOST_ROWS = 12_000_000
"""Rows for which the limit is measured."""
EXECUTORS = (1, 2, 3, 4)
EXECUTOR_MIB = 1024
"""Heap of each executor."""
SETTLE_S = 4.0
"""Wait in seconds for health files and acks, which are written at intervals."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Servers, contents of the topic, and the capacity that the shards need."""

    stack: Stack
    world: World
    expected: Expected
    capacity: int

    def at(self, name: str) -> World:
        """Return the world with a separate table."""
        return replace(self.world, hdfs=f"{self.stack.hdfs}/{name}")


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"# {text}", file=sys.stderr, flush=True)


def raw_messages(world: World) -> int:
    """Return the number of messages in the table."""
    health = world.health("spark")
    return sum(health.figures.get("raw", {}).get("until", {}).values()) if health else 0


def bucket_messages(world: World) -> int:
    """Return the number of messages in the slowest shard."""
    health = world.health("spark")
    shards = health.figures.get("buckets", {}).get("shards", {}) if health else {}
    return min((sum(at.values()) for at in shards.values()), default=0) if len(shards) == len(SHARDS) else 0


def is_begun(world: World, buckets: bool) -> bool:
    """Return true once the queries read the topic."""
    health = world.health("spark")
    figures = health.figures if health else {}
    begun = bool(figures.get("raw", {}).get("append"))
    return begun and (not buckets or bool(figures.get("buckets", {}).get("position")))


def is_done(world: World, expected: Expected, buckets: bool) -> bool:
    """Return true once the table's state and every shard's offsets equal the end of the topic."""
    return raw_messages(world) == expected.batches and (not buckets or bucket_messages(world) == expected.batches)


def run_once(bench: Bench, name: str, buckets: bool, measure: Callable[[World, Processes], None]) -> None:
    """Run Spark, and shards if `buckets`, on a separate table until `measure` returns; then verify and delete the
    table."""
    world = bench.at(name)
    world.clean()
    processes = start_shards(world, bench.capacity) if buckets else []
    try:
        processes.append(start_spark(world))
        wait_for("queries start", lambda: is_begun(world, buckets), processes, START_S)
        measure(world, processes)
        time.sleep(SETTLE_S)
        if buckets:
            verify_shards(world, bench.expected)
            note(f"{name}: {verify_values(world, bench.expected):,} values of buckets in the shards are right")
        verify_acks(world, bench.expected)
    finally:
        stop(processes)
    began = time.monotonic()
    verify_table(world.hdfs, bench.expected)
    note(f"{name}: verified in {time.monotonic() - began:.0f} s")
    authority, path = split_uri(world.hdfs)
    Client(authority).delete(path, recursive=True)


def both(bench: Bench, world: World, processes: Processes) -> None:
    """Measure `pipeline`, `pipeline.cpu`, `pipeline.memory`."""
    servers = [psutil.Process(bench.stack.pid(name)) for name in SERVERS]
    with Memory() as memory:
        began, cpu, servers_cpu = time.monotonic(), cpu_s(pipeline_processes()), cpu_s(servers)
        wait_for("table and shards reach the end", lambda: is_done(world, bench.expected, True), processes)
        took = time.monotonic() - began
        cpu, servers_cpu = cpu_s(pipeline_processes()) - cpu, cpu_s(servers) - servers_cpu
    samples = bench.expected.samples
    emit("pipeline", samples / took, "samples/s")
    rows = min(samples, MOST_ROWS)
    limit = encoded_rate(bench.world.folder, rows)
    emit_limit("pipeline", samples / took, limit, "samples/s (decompressed, sorted, the same Parquet on all cores)")
    emit("pipeline.cpu", cpu / samples * 1e6, "core-microseconds/sample")
    emit("pipeline.cpu@servers", servers_cpu / samples * 1e6, "core-microseconds/sample, Kafka and HDFS")
    emit("pipeline.memory", memory.peak_mb, "MiB resident, Spark and shards, peak")


def executors(bench: Bench, count: int) -> None:
    """Measure `pipeline.executors@COUNT`."""

    def cost(world: World, processes: Processes) -> None:
        cpu = cpu_s(pipeline_processes())
        wait_for("table and shards reach the end", lambda: is_done(world, bench.expected, True), processes)
        cpu = cpu_s(pipeline_processes()) - cpu
        emit(f"pipeline.executors@{count}", cpu / bench.expected.samples * 1e6, "core-microseconds/sample")

    world = replace(bench.world, master=f"local-cluster[{count},1,{EXECUTOR_MIB}]")
    run_once(replace(bench, world=world), f"executors-{count}", True, cost)


def raw_alone(bench: Bench, world: World, processes: Processes) -> None:
    """Measure `pipeline.raw`."""
    began = time.monotonic()
    wait_for("the table reaches the end", lambda: is_done(world, bench.expected, False), processes)
    emit("pipeline.raw", bench.expected.samples / (time.monotonic() - began), "samples/s")


def stops(bench: Bench, world: World, processes: Processes, stop_s: float) -> None:
    """Stop one path for a while, then the other; measure the path that continues."""
    moving = lambda: raw_messages(world) > 0 and bucket_messages(world) > 0  # noqa: E731
    wait_for("both paths move", moving, processes)
    shards = [p.pid for p in processes if "shard" in p.args[3:4]]  # type: ignore[index]
    rate = while_stopped(bench, world, shards, raw_messages, stop_s)
    emit("pipeline@buckets_stopped", rate, "samples/s into the table while both shards are stopped")
    rate = while_stopped(bench, world, [bench.stack.pid("datanode")], bucket_messages, stop_s)
    emit("pipeline@raw_stopped", rate, "samples/s into the shards while the DataNode is stopped")
    wait_for("table and shards reach the end", lambda: is_done(world, bench.expected, True), processes)


def while_stopped(bench: Bench, world: World, pids: list[int], read: Callable[[World], int], stop_s: float) -> float:
    """Return the samples a second that `read` counts while `pids` are stopped. Raises WrongCounts if there are none."""
    seen = [(time.monotonic(), read(world))]
    for pid in pids:
        psutil.Process(pid).send_signal(signal.SIGSTOP)
    try:
        until = time.monotonic() + stop_s
        while time.monotonic() < until:
            time.sleep(0.1)
            if (now := read(world)) != seen[-1][1]:
                seen.append((time.monotonic(), now))
    finally:
        for pid in pids:
            psutil.Process(pid).send_signal(signal.SIGCONT)
    if len(seen) == 1 and seen[0][1] < bench.expected.batches:
        raise WrongCounts(f"one path stood still while the other was stopped for {stop_s:.0f} s")
    return rate_of(seen)


def rate_of(seen: list[tuple[float, int]]) -> float:
    """Return the samples a second between changes; the first of several is ignored, as it may include earlier work."""
    (began, first), (ended, last) = seen[1 if len(seen) > 2 else 0], seen[-1]
    return (last - first) * SERIES_A_SOURCE / max(ended - began, 0.1)


def measure(stack: Stack, folder: Path, options: argparse.Namespace) -> None:
    """Fill the topic, then run one part after another."""
    began = time.monotonic()
    expected = fill(stack.kafka, "artimon.samples", PARTITIONS, options.sources, options.samples)
    size = expected.bytes / expected.samples
    note(f"{expected.samples:,} samples, {size:.1f} bytes each, written in {time.monotonic() - began:.0f} s")
    world = World(stack.zookeeper, stack.kafka, stack.hdfs, folder, options.master)
    bench = Bench(stack, world, expected, capacity_of_two(options.sources))
    parts = Parts()
    if "both" in options.parts:
        parts.run("pipeline", lambda: run_once(bench, "both", True, partial(both, bench)))
    if "raw" in options.parts:
        parts.run("pipeline.raw", lambda: run_once(bench, "raw", False, partial(raw_alone, bench)))
    if "stops" in options.parts:
        stopped = partial(stops, bench, stop_s=options.stop)
        parts.run("pipeline.stops", lambda: run_once(bench, "stops", True, stopped))
    for count in EXECUTORS if "executors" in options.parts else ():
        parts.run(f"pipeline.executors@{count}", partial(executors, bench, count))
    parts.finish()


PARTS = ("both", "raw", "stops", "executors", "lag")


def parse(args: list[str]) -> argparse.Namespace:
    """Parse the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline", description=__doc__, formatter_class=form)
    parser.add_argument("--samples", type=int, default=108_000_000)
    parser.add_argument("--sources", type=int, default=1_000, help="1,500 series each")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"which of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--stop", type=float, default=60.0, help="seconds in which a path is stopped")
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes in which the lag is measured")
    parser.add_argument("--master", default="local[4,4]")
    parser.add_argument("--base-port", type=int, default=25_000)
    parser.add_argument("--keep", action="store_true", help="keep the folder of data and logs")
    options = parser.parse_args(args)
    options.parts = set(options.parts.split(","))
    if unknown := options.parts - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
    return options


def run(args: list[str]) -> None:
    """Run all parts that the options name."""
    options = parse(args)
    if options.parts - {"lag"}:
        _run_filled(options)
    if "lag" in options.parts:
        lag.run_all(lag.Load(options.minutes, options.sources, 1), options.base_port, options.keep)


def _run_filled(options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="artimon-bench-"))
    try:
        with Stack(folder / "stack", ["zookeeper", "kafka", "hdfs"], base_port=options.base_port) as stack:
            measure(stack, folder, options)
    finally:
        if options.keep:
            note(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except (WrongCounts, lag.LagError, subprocess.SubprocessError) as error:
        sys.exit(f"benchmarks.pipeline: {error}")
