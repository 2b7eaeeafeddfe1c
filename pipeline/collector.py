"""The collector: checks what agents send, writes it to Kafka, and answers with the offsets. It keeps nothing itself."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from artimon.model.batch import BatchError, BatchHeader, BatchKind
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.codec import verify
from artimon.model.health import HealthFile, Publish, unpublished
from artimon.model.registration import Registration, zookeeper_client
from artimon.model.routing import partition_of
from bookkeeper.framed import FramedServer
from pipeline.acks import Position
from pipeline.broker import Broker, BrokerError, Message
from pipeline.collectors import COLLECTORS_PATH
from pipeline.idl import collector_idl
from pipeline.quota import MESSAGE_OVERHEAD, Quota, watch

log = logging.getLogger(__name__)

FRAME_BYTES = 4 * 1024 * 1024 + 512 * 1024
HELD_BYTES = 64 * 1024 * 1024
MAX_MESSAGES = 2_000
MAX_CONNECTIONS = 128
_HEALTH_S = 1.0
_KAFKA_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """`id`: name of this collector, unique. `kafka`: host:port, may be a comma list. `port` 0: any free one."""

    id: str
    zookeeper: str
    kafka: str
    host: str = "127.0.0.1"
    port: int = 0
    health: Path | None = None
    topic_prefix: str = "artimon"
    quota_bytes: int = 0
    """Bytes that the topic of samples may have; 0: any number."""


class Collector:
    """Handler of the Thrift service. Stateless but for counts and for the bytes it holds, which are bounded."""

    def __init__(
        self,
        broker: Broker,
        topic_prefix: str = "artimon",
        clock: Clock = SYSTEM_CLOCK,
        quota: Quota | None = None,
    ) -> None:
        self._broker, self._clock, self._quota = broker, clock, quota or Quota(0, clock)
        self._samples_topic, self._series_topic = f"{topic_prefix}.samples", f"{topic_prefix}.series"
        self._lock = threading.Lock()
        """Guards the counts below."""
        self._held = 0
        self.batches = self.bytes = self.last_answer_ms = 0
        self.nacks: Counter[str] = Counter()

    def send(self, messages: Sequence[bytes]) -> list[Any]:
        """The IDL's method: one answer a message, in order."""
        if len(messages) > MAX_MESSAGES:
            return [self._nack(f"full: {len(messages)} messages in a call, at most {MAX_MESSAGES}") for _ in messages]
        size = sum(map(len, messages))
        if not self._hold(size):
            return [self._nack(f"full: the collector holds {self._held} bytes, at most {HELD_BYTES}") for _ in messages]
        try:
            return self._forward(messages)
        finally:
            with self._lock:
                self._held -= size
                self.last_answer_ms = self._clock.now_ms()

    def figures(self) -> dict[str, Any]:
        """Counts for health."""
        with self._lock:
            return {
                "batches": self.batches,
                "bytes": self.bytes,
                "held_bytes": self._held,
                "nacks": dict(self.nacks),
                "last_answer_ms": self.last_answer_ms,
                "kafka": self._quota.figures(),
            }

    def _forward(self, messages: Sequence[bytes]) -> list[Any]:
        answers: list[Any] = [None] * len(messages)
        good: list[tuple[int, Message]] = []
        full = ""
        for index, data in enumerate(messages):
            try:
                message = self._message(verify(data), data)
                full = self._admit(message, full)
                if full and message.topic == self._samples_topic:
                    answers[index] = self._nack(full)
                else:
                    good.append((index, message))
            except BatchError as error:
                answers[index] = self._nack(f"damaged: {error}")
            except BrokerError as error:
                answers[index] = self._nack(f"kafka: {error}")
        try:
            results = self._broker.write([message for _, message in good]) if good else []
        finally:
            for _, message in good:
                self._settle(message)
        for (index, message), result in zip(good, results, strict=True):
            answers[index] = self._answer(message, result)
        return answers

    def _admit(self, message: Message, full: str) -> str:
        """Why the topic of samples takes nothing more. Once that is said, it is said to the rest of the call as well,
        so that a lane stays in order. Announcements always pass: their topic is compacted."""
        if full or message.topic != self._samples_topic:
            return full
        return self._quota.admit(message.partition, len(message.value) + MESSAGE_OVERHEAD)

    def _settle(self, message: Message) -> None:
        if message.topic == self._samples_topic:
            self._quota.settled(message.partition, len(message.value) + MESSAGE_OVERHEAD)

    def _message(self, header: BatchHeader, data: bytes) -> Message:
        if header.kind == BatchKind.SAMPLES:
            partitions = len(self._broker.topic(self._samples_topic).leaders)
            lane = header.id.lane_id
            return Message(self._samples_topic, partition_of(*lane, partitions), data)
        if header.kind == BatchKind.SERIES:
            key = f"{header.block}/{header.source}".encode()
            partitions = len(self._broker.topic(self._series_topic).leaders)
            return Message(self._series_topic, xxhash.xxh3_64_intdigest(key) % partitions, data, key)
        raise BatchError(f"kind {header.kind.name} of {header.id} is not carried by this collector")

    def _answer(self, message: Message, result: Position | str) -> Any:
        if isinstance(result, str):
            return self._nack(result)
        with self._lock:
            self.batches += 1
            self.bytes += len(message.value)
        return collector_idl().Answer(True, *result[:4], "", result.leader_epoch)

    def _nack(self, reason: str) -> Any:
        with self._lock:
            self.nacks[reason.split(":", 1)[0]] += 1
        return collector_idl().Answer(False, "", "", -1, -1, reason)

    def _hold(self, size: int) -> bool:
        with self._lock:
            if self._held and self._held + size > HELD_BYTES:
                return False
            self._held += size
            return True


def run_collector(
    config: CollectorConfig, stop: threading.Event, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
) -> None:
    """Serve until `stop`; raises OSError if the port is taken. Kafka and ZooKeeper may come, go and come back."""
    broker = Broker(config.kafka, clock)
    quota = Quota(config.quota_bytes, clock)
    collector = Collector(broker, config.topic_prefix, clock, quota)
    health = HealthFile(config.health, f"collector-{config.id}", clock, publish)
    server = FramedServer(
        collector_idl().Collector,
        collector,
        config.host,
        config.port,
        max_frame=FRAME_BYTES,
        max_connections=MAX_CONNECTIONS,
        name=f"collector-{config.id}",
    )
    try:
        port = server.start()
    except OSError as error:
        where = f"{config.host}:{config.port}"
        raise OSError(error.errno, f"collector {config.id} cannot listen on {where}: {error.strerror}") from error
    zookeeper = zookeeper_client(config.zookeeper)
    data = json.dumps({"host": config.host, "port": port, "pid": os.getpid()}).encode()
    registration = Registration(zookeeper, f"{COLLECTORS_PATH}/{config.id}", data)
    log.info("collector %s serves on %s:%d", config.id, config.host, port)
    try:
        zookeeper.start_async()
        if _wait_for_kafka(broker, quota, config, stop, health, clock):
            registration.start()
            topic = f"{config.topic_prefix}.samples"
            measuring = (quota, lambda: broker.log_sizes(topic), stop, clock)
            threading.Thread(target=watch, args=measuring, name="quota", daemon=True).start()
            _watch(collector, quota, registration, port, stop, health, clock)
    finally:
        registration.stop(2.0)
        server.stop(2.0)
        broker.close()
        zookeeper.stop()
        zookeeper.close()


def _wait_for_kafka(
    broker: Broker, quota: Quota, config: CollectorConfig, stop: threading.Event, health: HealthFile, clock: Clock
) -> bool:
    """True once Kafka describes the topic and says how large it is; until then no agent is told of this collector."""
    topic = f"{config.topic_prefix}.samples"
    while not stop.is_set():
        try:
            broker.topic(topic)
            quota.measure(lambda: broker.log_sizes(topic))
            if quota.known:
                return True
            problem = f"{quota.failure} (it needs Describe on the cluster; ARTIMON_KAFKA_QUOTA=0 means no quota)"
        except BrokerError as error:
            problem = str(error)
        log.warning("collector %s waits: %s", config.id, problem)
        health.write("starting", problem)
        clock.wait(stop, _KAFKA_RETRY_S)
    return False


def _watch(
    collector: Collector,
    quota: Quota,
    registration: Registration,
    port: int,
    stop: threading.Event,
    health: HealthFile,
    clock: Clock,
) -> None:
    while not stop.is_set():
        problem = "" if registration.registered else "not registered in ZooKeeper: agents that start now do not find us"
        if registration.conflict:
            problem = "another collector is registered under this id"
        problems = [quota.problem] if quota.problem else []
        health.write("ok", problem, port=port, problems=problems, **collector.figures())
        clock.wait(stop, _HEALTH_S)
