"""Scaling of the memory store: any number of series on any number of shard processes, and two replicas.

Shard processes, ZooKeeper and Kafka (announcements) are real; threads of this process decode and send samples as a task
of the buckets query does. Figures of each case: samples a second through feeder and shards, core-microseconds a sample
in the shards, their resident memory a series, and a query through the client: mean by rack over all series of one name.
Lines `varstore.scale.FIGURE@SERIESxSHARDS[r2]`.

python -m benchmarks.varstore_scaling --series 10000,100000,1000000 --shards 1,2,4,16
python -m benchmarks.varstore_scaling --series 4000000,8000000 --shards 1,4,16     # 8 million need 14 GiB
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
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
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.hash_routing import lane_of, partition_of
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.values import ValueType
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.stack import Stack
from benchmarks.common import emit
from benchmarks.loads.world import Processes, WrongCounts, stop, wait_for
from pipeline.control.shard_directory import ShardDirectory, read_groups
from pipeline.spark.feed_task import FeedPlan, FeedResult, feed_records
from pipeline.spark.raw_task import KafkaRecord
from query_dsl import evaluate, parse
from varstore.cluster.varstore_client import VarstoreClient
from varstore.index.shard_limits import bytes_per_series

SERIES_A_SOURCE = 1_000
NAMES = 10
RACKS = 40
POLLS = 6
PARTITIONS = 8
FEEDERS = 2
TOPIC_ID = "scaling"
MINUTE_MS = 60_000
MIB = 1 << 20
PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED of Linux: with the process id, the number of the clock of its processor time."""
START_S = 1_200.0
"""Limit in seconds of the start of the shards: each reads the announcements of all series."""
QUERIES = 7
GRID = Grid(MINUTE_MS, MINUTE_MS, 1)
"""Arbitrary grid: the request only checks that the answer is complete."""
Records = list[list[tuple[int, KafkaRecord]]]
"""For each feeder: (partition, record) by partition and offset."""


class Host:
    """One source with series `scale.vN{host,rack,i}`."""

    def __init__(self, number: int) -> None:
        self.name = f"scale/host-{number}/0"
        self._labels = {"host": f"h{number}", "rack": f"r{number % RACKS}"}
        self.prints = np.array([fingerprint(text) for text in self._texts()], np.uint64)
        self._random = np.random.default_rng(number)
        self._types = np.where(np.arange(SERIES_A_SOURCE) % 5 == 0, ValueType.DOUBLE, ValueType.INTEGER).astype(
            np.uint8
        )

    def _texts(self) -> Iterable[str]:
        numbers = range(SERIES_A_SOURCE)
        return (canonical(f"scale.v{i % NAMES}", {**self._labels, "i": str(i // NAMES)}) for i in numbers)

    def block(self, now_ms: int) -> SeriesBlock:
        """Return the announcement of the source."""
        infos = tuple(SeriesInfo(text, ValueType(t)) for text, t in zip(self._texts(), self._types, strict=True))
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
        block = host.block(SYSTEM_CLOCK.now_ms())
        producer.send("artimon.series", value=encode_series("scaling", block).data, key=block.key)
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
        words += ["--capacity", str(capacity), "--memory", str(capacity * bytes_per_series(DEFAULT_LEVELS) // MIB + 1)]
        words += ["--zookeeper", stack.zookeeper, "--kafka", stack.kafka]
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
    capacity = min(series, series * replicas // shards * 5 // 4 + 100_000) + 4_096
    processes = start_shards(stack, folder, members, replicas, capacity)
    zookeeper = zookeeper_client(stack.zookeeper)
    zookeeper.start()
    try:
        with VarstoreClient(stack.zookeeper) as client:
            directory = ShardDirectory(zookeeper)
            wait_for("shards start", lambda: _announced(client, shards, series * replicas), processes, START_S)
            used = [psutil.Process(process.pid) for process in processes]
            cpu = sum(map(process_cpu_s, used))
            took = feed(directory, work)
            cpu = sum(map(process_cpu_s, used)) - cpu
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


def process_cpu_s(process: psutil.Process) -> float:
    """Return the core-seconds of a process, to the nanosecond: a small case takes few ticks of 10 ms."""
    return time.clock_gettime(~process.pid << 3 | PROCESS_CLOCK)


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


def _numbers(text: str) -> list[int]:
    return sorted(int(word) for word in text.split(","))


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.varstore_scaling", description=__doc__, formatter_class=form)
    parser.add_argument("--series", type=_numbers, default=[10_000, 100_000, 1_000_000], help="by comma")
    parser.add_argument("--shards", type=_numbers, default=[1, 2, 4], help="by comma")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--base-port", type=int, default=25_600)
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-scaling-"))
    hosts: list[Host] = []
    try:
        with Stack(folder / "stack", ["zookeeper", "kafka"], base_port=options.base_port) as stack:
            for series in options.series:  # fewest first: announcements are only added
                fresh = [Host(n) for n in range(len(hosts), series // SERIES_A_SOURCE)]
                announce(stack.kafka, fresh)
                hosts += fresh
                for shards in options.shards:
                    measure(stack, folder, hosts, shards, options.replicas)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except (WrongCounts, subprocess.SubprocessError) as error:
        sys.exit(f"benchmarks.varstore_scaling: {error}")
