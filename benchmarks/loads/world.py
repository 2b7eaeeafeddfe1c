"""Processes that a benchmark of the pipeline starts beside the servers, and their resource usage."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from artimon.runtime.health import Health, read_health
from artimon.runtime.settings import load as load_settings
from artimon.stack import jars
from artimon.stack.java import find_java
from pipeline.spark.spark_session import is_local

SHARDS = ("0", "1")
DEADLINE_S = 1_800.0
Processes = list[subprocess.Popen[bytes]]


class WrongCounts(RuntimeError):
    """Stored data differs from the written data, or a deadline passed."""


@dataclass(frozen=True, slots=True)
class World:
    """Servers, and a folder for everything else. A path in `hdfs` selects a separate table."""

    zookeeper: str
    kafka: str
    hdfs: str
    folder: Path
    master: str = "local[4,4]"

    def health(self, part: str) -> Health | None:
        """Return the latest health file of a process."""
        return read_health(self.folder / f"{part}.json")

    def clean(self) -> None:
        """Delete the health files."""
        for path in self.folder.glob("*.json"):
            path.unlink()


class Memory:
    """Peak resident set of Spark and shards together, sampled twice a second."""

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
            self.peak_mb = max(self.peak_mb, sum(map(resident, pipeline_processes())) / 2**20)


def pipeline_processes() -> list[psutil.Process]:
    """Return Spark and the shards that this process started, with all their children."""
    found = []
    for child in psutil.Process().children():
        try:
            if {"spark", "shard"} & set(child.cmdline()[:5]):
                found += [child, *child.children(recursive=True)]
        except psutil.Error:
            continue
    return found


def resident(process: psutil.Process) -> int:
    """Return the resident bytes of a process, 0 if it has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Return the core-seconds of processes and of their ended children."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def _spawn(world: World, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    log = (world.folder / f"{arguments[0]}-{time.monotonic_ns()}.log").open("wb")
    common = ["--zookeeper", world.zookeeper, "--kafka", world.kafka]
    command = [sys.executable, "-m", "artimon.cli", *arguments, *common]
    return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})})


def start_shards(world: World, series: int) -> Processes:
    """Start real, empty shard processes; return when they are up."""
    options = ["--members", ",".join(SHARDS), "--capacity", str(series)]
    health = {i: world.folder / f"shard-{i}.json" for i in SHARDS}
    started = [_spawn(world, "shard", "--id", i, *options, "--health", str(health[i])) for i in SHARDS]
    wait_for("shards start", lambda: all(path.exists() for path in health.values()), started, 600)
    return started


def start_spark(world: World) -> subprocess.Popen[bytes]:
    """Start the Spark application as the stack runs it."""
    place = load_settings()
    folder = jars.ensure_jars(place, find_java(place), ["spark"]) / "spark"
    connector = ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
    where = ["--hdfs", world.hdfs, "--data", str(world.folder / "spark"), "--jars", connector, "--master", world.master]
    with_executors = {} if is_local(world.master) else _executor_environment(world.folder)
    return _spawn(world, "spark", *where, "--health", str(world.folder / "spark.json"), environment=with_executors)


def _executor_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a local-cluster, which writes to folders below SPARK_HOME: a copy by links."""
    home = folder / "spark-home"
    home.mkdir(exist_ok=True)
    for place in Path(pyspark.__file__).parent.iterdir():
        if not (home / place.name).exists():
            (home / place.name).symlink_to(place)
    return {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}


def wait_for(what: str, done: Callable[[], bool], processes: Processes, deadline_s: float = DEADLINE_S) -> None:
    """Wait until `done()`. Raises WrongCounts if a process ends or the deadline passes."""
    until = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > until:
            raise WrongCounts(f"{what}: not within {deadline_s:.0f} s")
        for process in processes:
            if process.poll() is not None:
                raise WrongCounts(f"{what}: {process.args!r} ended with {process.returncode}, see its log")
        time.sleep(0.05)


def stop(processes: Processes) -> None:
    """Terminate the processes by their ids; kill those that do not end."""
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
