"""Scaling of the memory store: 10,000 to 1.5 million series on 1, 2 and 4 shard processes, and two replicas.

Shard processes, ZooKeeper and Kafka (announcements) are real; threads of this process decode and send samples as a task
of the buckets query does. Figures of each case: samples a second through feeder and shards, core-microseconds a sample
in the shards, their resident memory a series, and a query through the client: mean by rack over all series of one name.
Lines `varstore.scale.FIGURE@SERIESxSHARDS[r2]`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
from kafka import KafkaProducer
from kazoo.client import KazooClient

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_samples, encode_series
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import Grid
from artimon.model.hash_routing import lane_of, partition_of
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.values import ValueType
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.stack import Stack
from benchmarks.common import emit
from benchmarks.loads.world import Processes, WrongCounts, cpu_s, stop, wait_for
from pipeline.control.shard_directory import ShardDirectory, read_groups
from pipeline.spark.feed_task import FeedPlan, FeedResult, feed_records
from pipeline.spark.raw_task import KafkaRecord
from query_dsl import evaluate, parse
from varstore.cluster.varstore_client import VarstoreClient

SERIES_A_SOURCE = 1_000
NAMES = 10
RACKS = 40
POLLS = 6
PARTITIONS = 8
FEEDERS = 2
TOPIC_ID = "scaling"
MINUTE_MS = 60_000
CASES = [(series, shards, 1) for series in (10_000, 100_000, 1_000_000, 1_500_000) for shards in (1, 2, 4)]
CASES.insert(9, (500_000, 2, 2))
CASES.sort(key=lambda case: case[0])
QUERIES = 7
GRID = Grid(MINUTE_MS, MINUTE_MS, 1)
"""Arbitrary grid: the request only checks that the answer is complete."""
Records = list[list[tuple[int, KafkaRecord]]]
"""For each feeder: (partition, record) by partition and offset."""


class Host:
    """One source with series `scale.vN{host,rack,i}`."""

    def __init__(self, number: int) -> None:
        self.name = f"scale/host-{number}/0"
        labels = {"host": f"h{number}", "rack": f"r{number % RACKS}"}
        self.texts = [
            canonical(f"scale.v{i % NAMES}", {**labels, "i": str(i // NAMES)}) for i in range(SERIES_A_SOURCE)
        ]
        self.prints = np.array([fingerprint(text) for text in self.texts], np.uint64)
        self._random = np.random.default_rng(number)
        self._types = np.where(np.arange(SERIES_A_SOURCE) % 5 == 0, ValueType.DOUBLE, ValueType.INTEGER).astype(
            np.uint8
        )

    def block(self, now_ms: int) -> SeriesBlock:
        """Return the announcement of the source."""
        infos = tuple(SeriesInfo(text, ValueType(t)) for text, t in zip(self.texts, self._types, strict=True))
        return SeriesBlock(self.name, 0, now_ms, infos)

    def poll(self, at_ms: int) -> Samples:
        """Return samples with new values, in the source's own order."""
        cells = self._random.integers(0, 1_000_000, SERIES_A_SOURCE)
        doubles = self._types == ValueType.DOUBLE
        cells[doubles] = self._random.normal(100.0, 30.0, int(doubles.sum())).view(np.int64)
        times, births = np.full(SERIES_A_SOURCE, at_ms, np.int64), np.full(SERIES_A_SOURCE, at_ms - 10**6, np.int64)
        return Samples(self.prints, times, births, self._types, cells)


def announce(kafka: str, hosts: list[Host]) -> None:
    """Write the series of the hosts to the topic of announcements."""
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all", max_block_ms=60_000)
    for host in hosts:
        batch = encode_series("scaling", host.block(SYSTEM_CLOCK.now_ms()))
        producer.send("artimon.series", value=batch.data, key=host.block(0).key)
    producer.flush(60)
    producer.close()


def record_polls(hosts: list[Host], now_ms: int) -> Records:
    """Return POLLS polls of every host, one a minute, as Kafka records."""
    logs: dict[int, list[tuple[int, KafkaRecord]]] = {p: [] for p in range(PARTITIONS)}
    sequences: dict[tuple[str, int], int] = {}
    for poll in range(POLLS):
        for number in np.random.default_rng(poll).permutation(len(hosts)).tolist():
            host, at = hosts[number], now_ms + (poll - POLLS) * MINUTE_MS + number % 10_000
            agent, lane = f"scaling-{number % 8}", lane_of(host.name)
            sequence = sequences.get((agent, lane), 0)
            sequences[agent, lane] = sequence + 1
            id_ = BatchId(agent, 1, lane, sequence)
            data = encode_samples(id_, host.name, bytes(16), at - 10**6, at, "default", host.poll(at)).data
            partition = partition_of(agent, 1, lane, PARTITIONS)
            logs[partition].append((partition, KafkaRecord(len(logs[partition]), at + 1_000, data)))
    return [[r for p in range(f, PARTITIONS, FEEDERS) for r in logs[p]] for f in range(FEEDERS)]


def start_shards(stack: Stack, folder: Path, members: list[str], replicas: int, capacity: int) -> Processes:
    """Start real, empty shard processes; return when each has read the announcements."""
    started = []
    for id_ in members:
        words = ["shard", "--id", id_, "--members", ",".join(members), "--replicas", str(replicas)]
        words += ["--capacity", str(capacity), "--zookeeper", stack.zookeeper, "--kafka", stack.kafka]
        log = (folder / f"shard-{id_}.log").open("wb")
        started.append(subprocess.Popen([sys.executable, "-m", "artimon.cli", *words], stdout=log, stderr=log))
    return started


def feed(directory: ShardDirectory, work: Records) -> float:
    """Feed the shards; return the seconds. Raises WrongCounts if one did not take everything."""
    held = [group for shard in directory.live_shards().values() for group, _ in read_groups(shard, TOPIC_ID) or ()]
    plan = FeedPlan(TOPIC_ID, tuple(held))
    began = time.monotonic()
    with ThreadPoolExecutor(FEEDERS) as threads:
        results = [r for some in threads.map(lambda records: list(feed_records(plan, records)), work) for r in some]
    took = time.monotonic() - began
    _check(results)
    return took


def _check(results: list[FeedResult]) -> None:
    for result in results:
        for key, outcome in result.groups.items():
            if outcome.next != result.until or outcome.error:
                raise WrongCounts(f"group {key}, partition {result.partition}: {outcome}")


def ask(client: VarstoreClient, now_ms: int, series: int) -> float:
    """Return the median milliseconds of the query. Raises WrongCounts."""
    text = f"fetch('scale.v3').between({now_ms - (POLLS + 1) * MINUTE_MS}, {now_ms}).mean(by=['rack'])"
    expression, took = parse(text), []
    for _ in range(QUERIES):
        began = time.monotonic()
        matrix = evaluate(expression, client, now_ms)
        took.append((time.monotonic() - began) * 1000)
    racks = min(RACKS, series // SERIES_A_SOURCE)
    if len(matrix.series) != racks:
        raise WrongCounts(f"{len(matrix.series)} classes, {racks} were expected: {matrix.notes}")
    return float(np.median(took))


def measure(stack: Stack, folder: Path, hosts: list[Host], shards: int, replicas: int) -> None:
    """Measure one case."""
    series = len(hosts) * SERIES_A_SOURCE
    members = [str(n) for n in range(shards)]
    now_ms = SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS
    work = record_polls(hosts, now_ms)
    processes = start_shards(stack, folder, members, replicas, max(4096, min(series * 3 // 2, series + 100_000)))
    zookeeper = zookeeper_client(stack.zookeeper)
    zookeeper.start()
    try:
        with VarstoreClient(stack.zookeeper) as client:
            directory = ShardDirectory(zookeeper)
            wait_for("shards start", lambda: _announced(client, shards, series * replicas), processes, 300)
            used = [psutil.Process(process.pid) for process in processes]
            cpu = cpu_s(used)
            took = feed(directory, work)
            cpu = cpu_s(used) - cpu
            case = f"@{series}x{shards}{'r2' if replicas == 2 else ''}"
            samples = series * POLLS
            emit(f"varstore.scale.feed{case}", samples / took, "samples/s")
            emit(f"varstore.scale.cpu{case}", cpu / samples * 1e6, "core-microseconds/sample, shards")
            memory = sum(process.memory_info().rss for process in used)
            emit(f"varstore.scale.memory{case}", memory / series, "bytes resident a series, 6 minutes held")
            wait_for("shards say that they are whole", lambda: _answers(client), processes, 60)
            emit(f"varstore.scale.rack{case}", ask(client, now_ms, series), "ms")
    finally:
        stop(processes)
        _forget(zookeeper)
        zookeeper.stop()
        zookeeper.close()


def _announced(client: VarstoreClient, shards: int, series: int) -> bool:
    try:
        told = client.statuses()
    except ValueError:
        return False
    return len(told) == shards and sum(int(one["series"]) for one in told.values()) == series


def _answers(client: VarstoreClient) -> bool:
    try:
        found = client.select(SelectRequest((Matcher(NAME, "=", "scale.v0"), Matcher("i", "=", "0")), GRID))
    except ValueError:
        return False
    return not found.partial


def _forget(zookeeper: KazooClient) -> None:
    """Delete the shards' nodes in ZooKeeper, as the next case has other members."""
    for path in ("/artimon/shards", "/artimon/varstore"):
        if zookeeper.exists(path):
            zookeeper.delete(path, recursive=True)


def cases(most: int) -> Iterator[tuple[int, int, int]]:
    """Yield (series, shards, replicas), fewest series first: announcements are only added."""
    return (case for case in CASES if case[0] <= most)


def run(args: list[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.varstore_scaling", description=__doc__, formatter_class=form)
    parser.add_argument("--most", type=int, default=1_500_000, help="series of the largest case")
    parser.add_argument("--base-port", type=int, default=25_600)
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-scaling-"))
    hosts: list[Host] = []
    try:
        with Stack(folder / "stack", ["zookeeper", "kafka"], base_port=options.base_port) as stack:
            for series, shards, replicas in cases(options.most):
                fresh = [Host(n) for n in range(len(hosts), series // SERIES_A_SOURCE)]
                announce(stack.kafka, fresh)
                hosts += fresh
                measure(stack, folder, hosts, shards, replicas)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except (WrongCounts, subprocess.SubprocessError) as error:
        sys.exit(f"benchmarks.varstore_scaling: {error}")
