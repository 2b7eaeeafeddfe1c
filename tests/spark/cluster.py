"""A real Spark cluster on loopback, from PySpark's own jars: a master and workers of one core each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from artimon.runtime.settings import child_environment
from artimon.runtime.settings import load as load_settings
from artimon.stack.jars import spark_jars
from artimon.stack.java import find_java
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """Return the environment of every process that runs Spark here."""
    java = find_java(load_settings())
    return child_environment(
        {
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark_jars().parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
        }
    )


class Cluster:
    """A standalone cluster; `master` is its address, `workers` are processes with groups of their own, executors
    included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        port = self.master.rsplit(":", 1)[1]
        ui = ("--webui-port", str(free_port()))
        self._spark("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port, *ui)
        eventually(lambda: "New state: ALIVE" in self.log("master"), "the master")
        for number in range(workers):
            self.workers.append(self.add_worker(number))
        eventually(lambda: self.log("master").count("Registering worker") == workers, "the workers")

    def add_worker(self, number: int) -> subprocess.Popen[bytes]:
        name = f"worker-{number}"
        place = ("--host", "127.0.0.1", "--webui-port", str(free_port()), "-d", str(self.folder / name))
        return self._spark(
            name, "org.apache.spark.deploy.worker.Worker", "-c", "1", "-m", "1g", *place, self.master
        )  # fmt: skip

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def executors(self) -> list[Path]:
        """Return the folder of each executor that was ever started."""
        return [path.parent for path in self.folder.glob("worker-*/app-*/*/stderr")]

    def kill_worker(self, number: int) -> None:
        """Kill the worker and its executors at once, as if the machine were gone."""
        kill_group(self.workers[number])

    def stop(self) -> None:
        for process in reversed(self._processes):
            kill_group(process)

    def _spark(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(spark_jars().parent / "bin" / "spark-class"), main, *arguments],
                env=environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started in a session of its own, with its children and nothing else."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(20)


def alive_in_group(group: int) -> list[int]:
    """Return the processes of a group, without zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:  # gone meanwhile
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


@contextmanager
def cluster_of(folder: Path, workers: int) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        made.start(workers)
        yield made
    finally:
        made.stop()


@contextmanager
def running_driver(command: Sequence[str], log: Path, more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver that is ended by SIGTERM, as by a service manager, and must exit within 30 s."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            list(command), env={**environment(), **more}, cwd=ROOT, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
        process.terminate()
        process.wait(30)
        # spark-submit is the JVM: its child, the Python driver, must notice and exit too
        eventually(lambda: not alive_in_group(process.pid), "the end of every process of the driver")
    finally:
        kill_group(process)
