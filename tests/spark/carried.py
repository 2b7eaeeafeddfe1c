"""The whole path of a batch with a ledger: real agent, collector, Kafka, raw query and acks."""

from __future__ import annotations

import base64
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.batch import PollResult, Samples
from artimon.model.protocols import SinkRefusedError
from artimon.runtime.supervision import SupervisedThread
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.spark.acks_publisher import AcksPublisher
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.retention import TopicTrimmer
from pipeline.spark.spark_settings import SparkConfig
from tests.pipeline.helpers import polled
from tests.pipeline.kafka_helpers import collector
from tests.spark.driving import running
from tests.spark.helpers import Ledger, now_ms, table_rows
from tests.waiting import eventually

SOURCES = 12


class Carried:
    """Pipeline under test; `ledger` holds the rows that the agent accepted, and the agent keeps them until the table
    has them."""

    def __init__(self, config: SparkConfig, session: SparkSession, client: KazooClient, quota: int = 0) -> None:
        self.config, self._session, self._client, self._quota = config, session, client, quota
        place = (config.topic_prefix, config.data / "agent", config.zookeeper)
        self.agent = Agent(AgentConfig(*place, "hdfs", topic_prefix=config.topic_prefix))
        self.ledger: Ledger = Counter()
        self.refused = 0
        self._number = 0

    def accept(self, batches: int = 1, rows: int = 3) -> None:
        """Poll the sources in turn, and add the rows to the ledger once the log has them."""
        for _ in range(batches):
            self._number += 1
            self._give(polled(f"s{self._number % SOURCES}/h/0", rows, now_ms() - 600_000 + self._number))

    def accept_large(self, batches: int) -> None:
        """Accept batches of some 300 kB that do not compress."""
        for _ in range(batches):
            self._number += 1
            at = now_ms()
            rows = [(n, at, at - 1, base64.b85encode(os.urandom(30_000)).decode()) for n in range(1, 11)]
            self._give(PollResult(f"s{self._number % SOURCES}/h/0", bytes(16), 1, at, Samples.of(rows)))

    def _give(self, one: PollResult) -> None:
        try:
            self.agent.wal_sink.accept_now([one])
        except SinkRefusedError:
            self.refused += 1
            return
        self.ledger.update((one.source, f, t, b, repr(v)) for f, t, b, v in one.samples.rows())

    @contextmanager
    def flowing(self, pause_s: float = 0.02) -> Iterator[None]:
        """Poll continuously within the context."""
        stop = threading.Event()

        def feed() -> None:
            while not stop.wait(pause_s):
                self.accept()

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            stop.set()
            feeder.join(60)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run agent and collector."""
        config = self.config
        with collector(config.zookeeper, config.kafka, config.topic_prefix, quota_bytes=self._quota):
            self.agent.start()
            try:
                yield
            finally:
                self.agent.stop()

    @contextmanager
    def spark(self) -> Iterator[RawQuery]:
        """Run raw query, publication of acks and retention, as the application does."""
        threads: list[SupervisedThread] = []
        acks = AcksPublisher(self.config, self._client)
        query = RawQuery(self.config, self._session, lambda: threads[0].healthy() if threads else None, acks.wake)
        retention = TopicTrimmer(self.config)
        with ExitStack() as all_:
            all_.callback(acks.wake)
            all_.enter_context(running("acks", acks.run))
            all_.enter_context(running("retention", retention.run))
            threads.append(all_.enter_context(running("raw", query.run)))
            yield query

    def figures(self) -> dict[str, Any]:
        return self.agent.figures()

    def acked(self, more: int) -> None:
        """Wait for this many further acks."""
        before = self.figures()["acked_batches"]
        eventually(lambda: self.figures()["acked_batches"] >= before + more, f"{more} more acks")

    def settle(self) -> None:
        """Wait until nothing is pending, and check that the table holds exactly the accepted rows."""
        eventually(lambda: self.figures()["pending_batches"] == 0, f"all acked, not {self.figures()}", 180)
        stored = table_rows(self.config)
        lost, extra = self.ledger - stored, stored - self.ledger
        assert (sum(lost.values()), sum(extra.values())) == (0, 0), f"lost {list(lost)[:3]}, too many {list(extra)[:3]}"


def delete_topics(config: SparkConfig) -> None:
    """Delete all topics of this test, and wait until Kafka has none of them."""
    admin = KafkaAdminClient(bootstrap_servers=config.kafka)
    mine = f"{config.topic_prefix}."
    admin.delete_topics([name for name in admin.list_topics() if name.startswith(mine)])
    eventually(lambda: not any(name.startswith(mine) for name in admin.list_topics()), "deletion")
    admin.close()


def delete_records(config: SparkConfig, partition: int, below: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=config.kafka)
    admin.delete_records({TopicPartition(config.samples_topic, partition): below})
    admin.close()
