"""Servers, collectors and agents of one run, and their resource usage."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from kafka import KafkaConsumer, TopicPartition

from artimon.model.batch_codec import parse_header
from artimon.stack.stack import Stack
from benchmarks.carrying.driver import Orders, Report
from benchmarks.loads.world import WrongCounts, cpu_s, stop, wait_for

TOPIC = "artimon.samples"


class Collectors:
    """Collectors as the stack runs them, as a context manager; `memory_mb` is the peak of the largest."""

    def __init__(self, stack: Stack, folder: Path, count: int) -> None:
        self._stack, self._folder, self._count = stack, folder, count
        self._started: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()
        self.memory_mb = 0.0

    def __enter__(self) -> Collectors:
        for number in range(self._count):
            self._started.append(self._spawn(number))
        health = [self._folder / f"collector-{n}.json" for n in range(self._count)]
        wait_for("collectors serve", lambda: all(map(_serves, health)), self._started, 300)
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        stop(self._started)

    def processes(self) -> list[psutil.Process]:
        """Return the running collectors."""
        return [psutil.Process(process.pid) for process in self._started]

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        name = f"collector-{number}"
        health = self._folder / f"{name}.json"
        health.unlink(missing_ok=True)
        where = ["--zookeeper", self._stack.zookeeper, "--kafka", self._stack.kafka, "--health", str(health)]
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "artimon.cli", "collector", "--id", name, *where]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            for process in self.processes():
                try:
                    self.memory_mb = max(self.memory_mb, process.memory_info().rss / 2**20)
                except psutil.Error:
                    continue


def _serves(health: Path) -> bool:
    try:
        said = json.loads(health.read_text())
        return bool(said["state"] == "ok" and not said["problem"])
    except (OSError, ValueError, KeyError):
        return False


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one run of agents, collectors and Kafka."""

    seconds: float
    samples: int
    batches: int
    bytes: int
    agents_cpu_s: float
    collectors_cpu_s: float
    kafka_cpu_s: float
    agent_mb: float
    """Anonymous memory of the largest agent."""
    collector_mb: float
    reports: list[Report]

    @property
    def rate(self) -> float:
        """Samples a second, from the first hand-over to the last ack."""
        return self.samples / self.seconds

    def latency_ms(self, part: float) -> float:
        """The greatest of the agents' quantiles at `part`."""
        return max(r.latencies_ms[round(part * 1000)] for r in self.reports if r.latencies_ms)


def carry(stack: Stack, folder: Path, agents: Sequence[Orders], collectors: int) -> Run:
    """Run all agents at once. Raises WrongCounts unless Kafka holds exactly the batches that they accepted."""
    before = ends(stack.kafka)
    with Collectors(stack, folder, collectors) as serving:
        children = [_start(orders, folder) for orders in agents]
        try:
            for child in children:
                _line(child, "ready")
            kafka = psutil.Process(stack.pid("kafka"))
            used = cpu_s(serving.processes()), cpu_s([kafka])
            for child in children:
                _tell(child, "go")
            reports = [Report(**json.loads(_line(child))) for child in children]
            cpu = cpu_s(serving.processes()) - used[0], cpu_s([kafka]) - used[1]
            for child in children:
                child.wait(60)
        finally:
            for child in children:
                child.kill()
                child.wait()
    run = Run(
        max(r.ended for r in reports) - min(r.began for r in reports),
        sum(r.samples for r in reports),
        sum(r.batches for r in reports),
        sum(r.bytes for r in reports),
        sum(r.cpu_s for r in reports),
        *cpu,
        max(r.resident_mb for r in reports),
        serving.memory_mb,
        reports,
    )
    verify(stack.kafka, before, run.batches)
    return run


def ends(kafka: str) -> dict[int, int]:
    """Return the end offset of each partition of the samples topic."""
    consumer: Any = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    try:
        parts = [TopicPartition(TOPIC, p) for p in sorted(consumer.partitions_for_topic(TOPIC) or ())]
        return {part.partition: end for part, end in consumer.end_offsets(parts).items()}
    finally:
        consumer.close()


def verify(kafka: str, before: dict[int, int], batches: int) -> None:
    """Check that Kafka got `batches` distinct batches since `before`; resent ones are recognized by their identity."""
    after = ends(kafka)
    grown = sum(after.values()) - sum(before.values())
    if grown == batches:
        return
    found = len(_identities(kafka, before, after)) if grown > batches else grown
    if found != batches:
        raise WrongCounts(f"Kafka holds {found:,} of {batches:,} batches ({grown:,} messages)")
    print(f"# {grown - batches} of {grown} messages were sent twice", file=sys.stderr)


def _identities(kafka: str, before: dict[int, int], after: dict[int, int]) -> set[Any]:
    consumer: Any = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False, consumer_timeout_ms=15_000)
    found: set[Any] = set()
    try:
        parts = [TopicPartition(TOPIC, p) for p in after]
        consumer.assign(parts)
        for part in parts:
            consumer.seek(part, before.get(part.partition, 0))
        while any(consumer.position(part) < after[part.partition] for part in parts):
            for records in consumer.poll(timeout_ms=1000).values():
                found.update(parse_header(record.value).id for record in records)
    finally:
        consumer.close()
    return found


def _start(orders: Orders, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{orders.name}.log").open("ab") as log:
        command = [sys.executable, "-m", "benchmarks.carrying.driver", json.dumps(asdict(orders))]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)


def _line(child: subprocess.Popen[bytes], expected: str = "") -> str:
    """Read the driver's next line; the driver enforces the deadlines."""
    if child.stdout is None:
        raise WrongCounts(f"{child.args!r} has no output")
    text = child.stdout.readline().decode().strip()
    if not text or (expected and text != expected):
        raise WrongCounts(f"{child.args!r} said {text!r}, see its log")
    return text


def _tell(child: subprocess.Popen[bytes], text: str) -> None:
    if child.stdin is None:
        raise WrongCounts(f"{child.args!r} has no input")
    child.stdin.write(f"{text}\n".encode())
    child.stdin.flush()


def fresh(folder: Path, name: str) -> Path:
    """Make a new folder."""
    path = folder / f"{name}-{time.monotonic_ns()}"
    path.mkdir()
    return path
