"""Publishes the committed offsets of the table in ZooKeeper. Agents compare them and forget what is safe.

The source is always the newest state of the *table*, never memory: an overtaken driver publishes its successor's
progress.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.znode import parse_json_object
from artimon.rawtable.head import HeadReader
from artimon.rawtable.table_state import RawState, Span, TopicState
from artimon.runtime.partition_counts import ACKS_PATH as PATH
from artimon.runtime.supervision import LoopGuard
from pipeline.spark.generations import empty_state, generation_to_read, later_generations
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicClient, TopicInfo

log = logging.getLogger(__name__)

ZOOKEEPER_TIMEOUT_S = 5.0


class AcksPublisher:
    """Publishes when woken and every `config.acks_interval_s`."""

    def __init__(self, config: SparkConfig, zookeeper: KazooClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config, self._zookeeper, self._clock = config, zookeeper, clock
        self._wake = threading.Event()
        self._topic = TopicClient(config.kafka, config.samples_topic)
        self._head = HeadReader(config.hdfs)
        self._turns = LoopGuard("acks are not published")

    @property
    def problem(self) -> str:
        """Reason why the last turn published nothing; "" if it succeeded."""
        return self._turns.problem

    def wake(self) -> None:
        """Wake the publisher after an append."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Publish until `stop`. A failure is retried at the next turn."""
        while not stop.is_set():
            self._publish_all()
            self._wake.wait(self._config.acks_interval_s)
            self._wake.clear()
        self._topic.close()

    def _publish_all(self) -> None:
        self._turns.attempt(self._publish_table)

    def _publish_table(self) -> None:
        with suppress(FileNotFoundError):  # no table yet
            self.publish()

    def publish(self) -> None:
        """Publish once, for every topic that the table knows."""
        version, state = self._head.head()
        if state.current is None:
            return
        # read the node before table and log: if another driver publishes meanwhile, our write fails: no step back
        found = self._topic.generations()
        waiting = later_generations(state, found)
        ids = [*(one.topic_id for one in waiting), *(one.topic_id for one in state.topics[-2:])]
        nodes = {topic_id: self._read(topic_id) for topic_id in ids}
        version, state = self._head.head()
        self._topic = self._topic.switched_to(generation_to_read(state, found).topic)
        info = self._topic.describe()
        bounds: dict[str, Mapping[int, Span]] = {info.topic_id: self._topic.log_bounds(info.partitions)}
        # waiting topics are written first, so that a reader of the current topic's newer state finds theirs too
        waiting = later_generations(state, found)
        bounds |= {one.topic_id: self._bounds_of(one) for one in waiting}
        for topic in (*map(empty_state, waiting), *state.topics[-2:]):
            if topic.topic_id in nodes:
                live = bounds.get(topic.topic_id, {})
                told = acks_document(state, version, topic, live, self._clock.now_ms())
                self._write(topic.topic_id, nodes[topic.topic_id], told)

    def _bounds_of(self, info: TopicInfo) -> Mapping[int, Span]:
        """Return the log bounds of a generation that is not read yet."""
        beside = self._topic.sibling(info.topic)
        try:
            return beside.log_bounds(info.partitions)
        finally:
            beside.close()

    def _read(self, topic_id: str) -> tuple[int, dict[str, Any]]:
        """Return version and content of a topic's node; the version is -1 if there is none."""
        try:
            data, stat = self._zookeeper.get_async(f"{PATH}/{topic_id}").get(timeout=ZOOKEEPER_TIMEOUT_S)
        except NoNodeError:
            return -1, {}
        try:
            return stat.version, parse_json_object(data or b"{}")
        except ValueError as error:
            log.error("%s/%s is not a valid acks document (%s): rewriting it", PATH, topic_id, error)
            return stat.version, {}

    def _write(self, topic_id: str, node: tuple[int, dict[str, Any]], fresh: dict[str, Any]) -> None:
        version, old = node
        if old.get("table") == fresh["table"] and old.get("version", 0) > fresh["version"]:
            return
        path, data = f"{PATH}/{topic_id}", json.dumps(fresh).encode()
        try:
            if version < 0:
                self._zookeeper.create_async(path, data, makepath=True).get(timeout=ZOOKEEPER_TIMEOUT_S)
            else:
                self._zookeeper.set_async(path, data, version).get(timeout=ZOOKEEPER_TIMEOUT_S)
        except (BadVersionError, NodeExistsError):
            self._wake.set()  # another driver publishes too: retry


def acks_document(
    state: RawState, version: int, topic: TopicState, bounds: Mapping[int, Span], now_ms: int
) -> dict[str, Any]:
    """Return the document that agents read of one topic. Everything below `until` is in the table, a proven duplicate,
    dead-lettered, or in `lost`."""
    partitions = {}
    for partition, until in sorted(topic.until.items()):
        start, end = bounds.get(partition, (until, until))
        lost = [list(span) for span in topic.lost.get(partition, ())]
        epochs = [list(one) for one in topic.epochs.get(partition, ())]
        bounds_ = {"log_start": start, "log_end": end}
        partitions[str(partition)] = {"until": until, **bounds_, "lost": lost, "epochs": epochs}
    return {
        "cluster": state.cluster,
        "topic": state.topic,
        "topic_id": topic.topic_id,
        "closed": topic.closed,
        "table": state.table,
        "version": version,
        "append": state.append,
        "time_ms": now_ms,
        "partitions": partitions,
    }
