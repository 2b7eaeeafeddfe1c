"""The Kafka broker: one KRaft node that is broker and controller."""

from __future__ import annotations

import base64
import struct
import uuid
from types import MappingProxyType

from artimon.stack.java import jvm_flags
from artimon.stack.part import HOST, Context, Part, ask_tcp
from artimon.stack.process import Command
from artimon.stack.topics import make_topics
from artimon.stack.zookeeper import write_log4j2

_API_VERSIONS = 18
MESSAGE_MAX_BYTES = 1024 * 1024
_LEAST_SEGMENT, _MOST_SEGMENT = 1024 * 1024, 128 * 1024 * 1024
_SEGMENTS = 128


def segment_bytes(quota: int) -> int:
    """Size of a log segment for a quota of the topic of samples (0: none). Kafka deletes whole segments and never the
    one it writes, so those of eight partitions must be small against half of it."""
    return min(_MOST_SEGMENT, max(_LEAST_SEGMENT, quota // _SEGMENTS)) if quota else _MOST_SEGMENT


class Kafka(Part):
    """One broker. Healthy when it answers requests and our topics exist."""

    name = "kafka"
    ports = MappingProxyType({"kafka.broker": 9092, "kafka.controller": 9093})
    jar_sets = ("kafka",)
    memory_mb = 900
    stop_s = 20.0

    def __init__(self) -> None:
        self._topics_made = False

    def prepare(self, context: Context) -> list[Command]:
        self._topics_made = False
        folder = context.folder(self.name)
        write_log4j2(folder)
        config = folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._properties(context).items()))
        if (folder / "data" / "meta.properties").exists():
            return []
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "-t", f"A{cluster[1:]}", "-c", str(config), "--ignore-formatted"]
        return [self._java(context, 128, *tool)]

    def command(self, context: Context) -> Command:
        heap = int(context.options.get("kafka_heap_mb", "288"))
        return self._java(context, heap, "kafka.Kafka", str(context.folder(self.name) / "server.properties"))

    def check(self, context: Context) -> str:
        request = struct.pack(">hhih", _API_VERSIONS, 0, 1, -1)
        answer = ask_tcp(context.port("kafka.broker"), struct.pack(">i", len(request)) + request, enough=10)
        if len(answer) < 10 or struct.unpack(">ih", answer[4:10]) != (1, 0):
            return f"answered {answer[:20]!r} to a version request"
        if not self._topics_made:
            make_topics(context.address("kafka.broker"))
            self._topics_made = True
        return ""

    def addresses(self, context: Context) -> dict[str, str]:
        return {"ARTIMON_KAFKA": context.address("kafka.broker")}

    def _java(self, context: Context, heap_mb: int, *arguments: str) -> Command:
        folder = context.folder(self.name)
        argv = [
            str(context.java.program),
            *jvm_flags(heap_mb, context.temporary(self.name), small=False),
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            f"-Dkafka.logs.dir={folder}",
            "-cp",
            f"{context.jars / 'kafka'}/*",
            *arguments,
        ]
        return Command(argv)

    def _properties(self, context: Context) -> dict[str, str]:
        broker, controller = context.address("kafka.broker"), context.address("kafka.controller")
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "host.name": HOST,
            "log.dirs": str(context.folder(self.name) / "data"),
            "auto.create.topics.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "num.recovery.threads.per.data.dir": "2",
            "background.threads": "2",
            "broker.heartbeat.interval.ms": "500",  # a restart waits until its earlier life is forgotten
            "broker.session.timeout.ms": "4000",
            "message.max.bytes": str(MESSAGE_MAX_BYTES),
            "socket.request.max.bytes": str(32 * 1024 * 1024),
            "max.connections": "2000",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            "log.cleaner.threads": "1",
            "log.segment.bytes": str(segment_bytes(context.settings.kafka_quota_bytes)),
            # what the raw table holds and Spark has let go frees its room soon, so that the quota means something
            "log.retention.check.interval.ms": "10000",
            "log.segment.delete.delay.ms": "1000",
            "log.initial.task.delay.ms": "5000",
            "log.index.size.max.bytes": str(2 * 1024 * 1024),
            "controlled.shutdown.enable": "true",
        }
