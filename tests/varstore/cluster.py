"""Shard processes on a real ZooKeeper and Kafka, fed without Spark and compared with one shard that gets everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kazoo.client import KazooClient

from artimon.compute.statistics import STATISTICS
from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest
from artimon.model.values import Kind, ValueType
from pipeline.control.shard_directory import ShardDirectory, ShardsUnknownError
from tests.varstore.feeding import Feed, Log, reference, table
from tests.varstore.worlds import Row, announce, print_of, text_of
from tests.waiting import LIMIT_S, eventually
from varstore.cluster import membership as membership_of
from varstore.cluster.cluster_directory import ClusterDirectory, ShardAddress
from varstore.cluster.membership import Membership
from varstore.cluster.varstore_client import StoreUnavailable, VarstoreClient

NOW = SYSTEM_CLOCK.now_ms() // 60_000 * 60_000
"""Real time, as that of the announcements: series that are silent for days are forgotten."""
SOURCES = [f"source-{i}" for i in range(60)]
AGENTS = [f"agent-{i}" for i in range(6)]
ALL = SelectRequest((Matcher(NAME, "prefix", "test."),), Grid(NOW + 120_000, 60_000, 3), STATISTICS)
CAPACITY = 2_000
FEED_S = 0.2


@dataclass
class Cluster:
    """Shards by id; `feed_once` or the thread of `load` feeds them."""

    zookeeper: str
    kafka: str
    prefix: str
    topic_id: str
    folder: Path
    client: KazooClient
    store: VarstoreClient
    options: dict[str, Any] = field(default_factory=dict)
    """Further fields of `ShardConfig`; "data" is the folder above each shard's own."""
    asked: Sequence[SelectRequest] = (ALL,)
    """Requests whose answers are compared."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    feed: Feed | None = None
    values: int = 0

    def __post_init__(self) -> None:
        self._producer = KafkaProducer(bootstrap_servers=self.kafka, acks="all")
        self._feeding = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.problems: list[str] = []

    # shards

    def start(self, *ids: str) -> None:
        """Start processes with these ids."""
        for id_ in ids:
            config = {
                "id": id_, "members": ["nobody"], "zookeeper": self.zookeeper, "kafka": self.kafka,
                "capacity": CAPACITY, "topic_prefix": self.prefix, "health": str(self.folder / f"shard-{id_}.json"),
                **self.options,
            }  # fmt: skip
            if "data" in config:
                config["data"] = str(Path(config["data"]) / f"shard-{id_}")
            with (self.folder / f"shard-{id_}.log").open("ab") as out:
                command = [sys.executable, "-m", "tests.varstore.shard_process", json.dumps(config)]
                self.processes[id_] = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ})

    def send(self, id_: str, number: signal.Signals) -> None:
        self.processes[id_].send_signal(number)

    def kill(self, id_: str) -> None:
        self.send(id_, signal.SIGKILL)
        self.processes[id_].wait(10)

    def change(self, how: Callable[[Membership], Membership]) -> Membership:
        return membership_of.update_membership(self.client, how)

    def places(self) -> dict[str, ShardAddress]:
        return {place.id: place for place in ClusterDirectory(self.client).read().live}

    def is_settled(self, *ids: str) -> bool:
        """Return True if exactly these shards hold all of their virtual shards, complete."""
        membership = membership_of.read_membership(self.client)
        assert membership is not None
        places = self.places()
        return all(id_ in places for id_ in ids) and all(
            place.healthy_vshards == place.held_vshards == (membership.owned_by(id_) if id_ in ids else 0)
            for id_, place in places.items()
        )

    def restart(self, id_: str) -> None:
        """Start the process and wait until it is registered anew."""
        before = self.places().get(id_)
        self.start(id_)
        eventually(lambda: id_ in (now := self.places()) and now[id_] != before, f"shard {id_} is registered")

    def settle(self, *ids: str) -> None:
        eventually(lambda: self.is_settled(*ids), f"shards {ids} hold their virtual shards")

    # samples

    def announce_all(self) -> None:
        """Announce two series of each source, as the collector does."""
        for i, source in enumerate(SOURCES):
            infos = tuple(SeriesInfo(text_of(s), ValueType.INTEGER, Kind.COUNTER) for s in (2 * i, 2 * i + 1))
            block = SeriesBlock(source, 0, 1, infos)
            self._producer.send(f"{self.prefix}.series", key=block.key, value=encode_series("agent", block).data)
        self._producer.flush(20)

    def sample(self, count: int) -> None:
        """Send `count` batches, one source after the other, and as many messages to Kafka, so that it ends where the
        log does."""
        for _ in range(count):
            self.values += 1
            source = self.values % len(SOURCES)
            self.send_rows(source, [(print_of(2 * source + i), NOW + self.values, NOW, self.values) for i in (0, 1)])
        self._producer.flush(20)

    def send_rows(self, source: int, rows: Sequence[Row], append_ms: int = 0) -> None:
        """Send one batch of a source, with this append time (0: the time of its last sample)."""
        before = self.log.ends()
        append_ms = append_ms or max(row[1] for row in rows)
        self.log.send(AGENTS[source % len(AGENTS)], SOURCES[source], rows, append_ms)
        partition = next(p for p, end in self.log.ends().items() if end != before[p])
        self._producer.send(f"{self.prefix}.samples", value=b"x", partition=partition)

    def trim(self, until: Mapping[int, int]) -> None:
        """Delete the records of Kafka below these offsets."""
        self._producer.flush(20)
        admin = KafkaAdminClient(bootstrap_servers=self.kafka)
        admin.delete_records({TopicPartition(f"{self.prefix}.samples", p): at for p, at in until.items()})
        admin.close()
        self.log.starts.update(until)

    def feed_once(self) -> None:
        """Do the work of the query in a second or two."""
        with self._feeding:
            try:
                if self.feed is None:
                    self.feed = Feed(self.log, ShardDirectory(self.client), self.topic_id)
                self.feed.check_shards()
                self.feed.micro_batch()
                self.feed.help_laggards()
            except ShardsUnknownError:
                self.feed = None

    def load(self, batches: int = 0) -> None:
        """Feed continuously from now on, and send this many batches before each feed."""
        self._stop.clear()

        def run() -> None:
            while not self._stop.wait(FEED_S):
                try:
                    self.sample(batches)
                    self.feed_once()
                except Exception as error:
                    self.problems.append(f"feeding: {error!r}")

        self._thread = threading.Thread(target=run, name="load", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Stop the load."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
            self._thread = None

    # answers

    def expected(self) -> list[Buckets]:
        """Return the answers of one shard that gets everything."""
        whole = reference(self.log, CAPACITY)
        for i, source in enumerate(SOURCES):
            announce(whole, [2 * i, 2 * i + 1], source)
        return [whole.select(request) for request in self.asked]

    def answer(self) -> Buckets:
        return self.store.select(ALL)

    def difference(self) -> str:
        """Describe how the answers differ from the expected ones; empty if they do not."""
        for request, expected in zip(self.asked, self.expected(), strict=True):
            if wrong := self._difference(request, expected):
                return f"{wrong} ({request.grid})"
        return ""

    def _difference(self, request: SelectRequest, whole: Buckets) -> str:
        try:
            answer = self.store.select(request)
        except StoreUnavailable as error:
            return str(error)
        if answer.partial:
            return f"it is partial: {answer.notes}"
        found, expected = table([answer], request), table([whole], request)
        if found.keys() != expected.keys():
            return f"{len(expected.keys() - found.keys())} series missing, {len(found.keys() - expected.keys())} new"
        wrong = [p for p, cells in expected.items() if found[p] != cells]
        return f"{len(wrong)} series differ: {found[wrong[0]]} for {expected[wrong[0]]}" if wrong else ""

    def check(self, seconds: float = LIMIT_S) -> None:
        """Wait until the answer is the expected one; nothing more is sent."""

        deadline = monotonic() + seconds
        pause = threading.Event()
        self.feed_once()
        while wrong := self.difference():
            assert monotonic() < deadline, f"the answer is wrong for {seconds} s: {wrong}"
            pause.wait(FEED_S)
            self.feed_once()
        assert self.problems == []

    def close(self) -> None:
        self.rest()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.store.close()
        self._producer.close(timeout=5)


class Watcher:
    """Queries continuously, and records every answer that is partial, late, or less than before."""

    def __init__(self, cluster: Cluster, late_s: float) -> None:
        self._cluster, self._late_s = cluster, late_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.wrong: list[str] = []
        self.asked, self.slowest_s = 0, 0.0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        counts: dict[int, int] = {}
        while not self._stop.wait(0.02):
            began = monotonic()
            try:
                answer = self._cluster.answer()
            except Exception as error:
                self.wrong.append(repr(error))
                continue
            took = monotonic() - began
            self.asked, self.slowest_s = self.asked + 1, max(self.slowest_s, took)
            if answer.partial or took > self._late_s:
                self.wrong.append(f"{took:.1f} s, {answer.notes}")
            now = {s.fingerprint: int(answer.statistics["count"][row].sum()) for row, s in enumerate(answer.series)}
            less = {p: (n, now.get(p)) for p, n in counts.items() if now.get(p, 0) < n}
            if less and not answer.partial:
                self.wrong.append(f"{len(less)} series have less than before: {list(less.items())[:3]}")
            counts = {**counts, **now}
