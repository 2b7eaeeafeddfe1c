"""Kafka to HDFS and to the shards: samples a second from a topic filled beforehand until the table's commit and every
shard's offsets equal its end; duplicates are looked for, acks published, counts and sums verified afterwards.

python -m benchmarks.pipeline [--samples 21000000] [--sources 1000] [--keep]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from deltalake import DeltaTable
from kazoo.client import KazooClient

from artimon.model.health import Health, read_health
from artimon.settings import load as load_settings
from artimon.stack import jars
from artimon.stack.java import find_java
from artimon.stack.stack import Stack
from benchmarks.common import emit
from benchmarks.loads.samples import SERIES_A_SOURCE, Expected, fill
from pipeline.spark.acks import PATH as ACKS_PATH
from pipeline.spark.table import raw_uri

PARTITIONS = 8
SHARDS = ("0", "1")
DEADLINE_S = 1_800.0
_MASK = (1 << 64) - 1


class WrongCounts(RuntimeError):
    """What was found is not what was written."""


@dataclass(frozen=True, slots=True)
class World:
    """The servers, and a folder for everything else."""

    zookeeper: str
    kafka: str
    hdfs: str
    folder: Path
    master: str = "local[4,4]"


class Memory:
    """Peak resident set of this process's children and of each of them, sampled twice a second."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self.peak_mb = max(self.peak_mb, sum(map(_resident, _pipeline_processes())) / 2**20)


def _pipeline_processes() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        try:
            if {"spark", "shard"} & set(child.cmdline()[:5]):
                found += [child, *child.children(recursive=True)]
        except psutil.Error:
            continue
    return found


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _cpu_s(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def _spawn(world: World, *arguments: str) -> subprocess.Popen[bytes]:
    log = (world.folder / f"{arguments[0]}-{time.monotonic_ns()}.log").open("wb")
    common = ["--zookeeper", world.zookeeper, "--kafka", world.kafka]
    return subprocess.Popen([sys.executable, "-m", "artimon.cli", *arguments, *common], stdout=log, stderr=log)


def start_shards(world: World, series: int) -> list[subprocess.Popen[bytes]]:
    """The real ones."""
    options = ["--members", ",".join(SHARDS), "--capacity", str(series)]
    health = {i: str(world.folder / f"shard-{i}.json") for i in SHARDS}
    return [_spawn(world, "shard", "--id", i, *options, "--health", health[i]) for i in SHARDS]


def start_spark(world: World) -> subprocess.Popen[bytes]:
    """The Spark application as the stack runs it."""
    place = load_settings()
    folder = jars.ensure(place, find_java(place), ["spark"]) / "spark"
    connector = ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
    where = ["--hdfs", world.hdfs, "--data", str(world.folder / "spark"), "--jars", connector, "--master", world.master]
    return _spawn(world, "spark", *where, "--health", str(world.folder / "spark.json"))


def wait_for(what: str, done: object, processes: list[subprocess.Popen[bytes]], deadline_s: float = DEADLINE_S) -> None:
    """Until `done()`; raises when a process ends or time is up."""
    until = time.monotonic() + deadline_s
    while not done():  # type: ignore[operator]
        if time.monotonic() > until:
            raise WrongCounts(f"{what}: not within {deadline_s:.0f} s")
        for process in processes:
            if process.poll() is not None:
                raise WrongCounts(f"{what}: {process.args!r} ended with {process.returncode}, see its log")
        time.sleep(0.05)


def is_begun(health: Health | None) -> bool:
    """Both queries read."""
    figures = health.figures if health else {}
    return bool(figures.get("raw", {}).get("append")) and bool(figures.get("buckets", {}).get("position"))


def is_done(world: World, expected: Expected) -> bool:
    """The newest state of the table and every shard's word equal the end of the topic."""
    health = read_health(world.folder / "spark.json")
    if health is None:
        return False
    ends = {str(p): n for p, n in expected.ends.items()}
    until = health.figures.get("raw", {}).get("until", {})
    shards = health.figures.get("buckets", {}).get("shards", {})
    if any(until.get(p) != end for p, end in ends.items()) or len(shards) < len(SHARDS):
        return False
    return all(shard.get(p) == end for shard in shards.values() for p, end in ends.items())


def verify(world: World, expected: Expected) -> None:
    """Count and add up the table; compare what the shards applied and what was published. Raises WrongCounts."""
    rows = series = times = integers = 0
    dataset = DeltaTable(raw_uri(world.hdfs)).to_pyarrow_dataset()
    for batch in dataset.to_batches(columns=["series", "time", "integer"]):
        rows += len(batch)
        series += int(batch.column("series").to_numpy().view(np.uint64).sum())
        times += int((batch.column("time").cast(pa.int64()).to_numpy() // 1000).sum())
        integers += int(batch.column("integer").fill_null(0).to_numpy().sum())
    found = (rows, series & _MASK, times & _MASK, integers & _MASK)
    wanted = (expected.samples, expected.series_sum, expected.time_sum, expected.integer_sum)
    if found != wanted:
        raise WrongCounts(f"table: rows and sums {found}, written {wanted}")
    applied = sum(read_applied(world, i) for i in SHARDS)
    if applied != expected.samples:
        raise WrongCounts(f"shards applied {applied} samples, written {expected.samples}")
    verify_acks(world, expected)


def read_applied(world: World, shard: str) -> int:
    """Samples that a shard says it applied."""
    health = read_health(world.folder / f"shard-{shard}.json")
    return int(health.figures.get("applied", 0)) if health else 0


def verify_acks(world: World, expected: Expected) -> None:
    """What agents would read says that all of it is safe."""
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


def measure(world: World, sources: int, samples: int) -> None:
    """Fill, run, verify, and print the lines."""
    began = time.monotonic()
    expected = fill(world.kafka, "artimon.samples", PARTITIONS, sources, samples)
    print(
        f"# {expected.samples:,} samples in {expected.batches:,} batches,"
        f" {expected.bytes / expected.samples:.1f} bytes each, written in {time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )
    processes = start_shards(world, sources * SERIES_A_SOURCE // len(SHARDS) * 11 // 10)
    try:
        shards_up = lambda: all((world.folder / f"shard-{i}.json").exists() for i in SHARDS)  # noqa: E731
        wait_for("shards start", shards_up, processes, 120)
        processes.append(start_spark(world))
        spark_json = world.folder / "spark.json"
        wait_for("queries start", lambda: is_begun(read_health(spark_json)), processes, 120)
        with Memory() as memory:
            before, cpu = time.monotonic(), _cpu_s(_pipeline_processes())
            wait_for("table and shards reach the end", lambda: is_done(world, expected), processes)
            took = time.monotonic() - before
            cpu = _cpu_s(_pipeline_processes()) - cpu
        time.sleep(4.0)  # health files and acks are written at intervals
        verify(world, expected)
    finally:
        stop(processes)
    emit("pipeline", expected.samples / took, "samples/s")
    emit("pipeline.cpu", cpu / expected.samples * 1e6, "core-microseconds/sample")
    emit("pipeline.memory", memory.peak_mb, "MiB resident, Spark and shards, peak")


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """All of ours, by their ids."""
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()


def run(args: list[str]) -> None:
    """Command line: see the module."""
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline", description=__doc__)
    parser.add_argument("--samples", type=int, default=21_000_000)
    parser.add_argument("--sources", type=int, default=1_000, help="1,500 series each")
    parser.add_argument("--master", default="local[4,4]")
    parser.add_argument("--keep", action="store_true", help="leave the folder of data and logs")
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-bench-"))
    try:
        with Stack(folder / "stack", ["zookeeper", "kafka", "hdfs"], base_port=25_000) as stack:
            world = World(stack.zookeeper, stack.kafka, stack.hdfs, folder, options.master)
            measure(world, options.sources, options.samples)
    finally:
        if options.keep:
            print(f"# kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run(sys.argv[1:])
