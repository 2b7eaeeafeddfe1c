"""Kafka brokers of the stack: KRaft nodes, each broker and controller."""

from __future__ import annotations

import base64
import struct
import uuid
from pathlib import Path
from types import MappingProxyType

from artimon.model.topic_spec import REPLICATION, platform_topics
from artimon.stack.child_process import ProcessCommand
from artimon.stack.java import jvm_flags
from artimon.stack.stack_part import StackContext, StackPart, numbered_addresses, numbered_name, tcp_request
from artimon.stack.zookeeper_part import write_log4j2

_API_VERSIONS = 18
MESSAGE_MAX_BYTES = 1024 * 1024
MAX_BROKERS = 9
_LEAST_SEGMENT, _MOST_SEGMENT = 1024 * 1024, 128 * 1024 * 1024
_SEGMENTS_IN_QUOTA = 128


def segment_bytes(quota: int) -> int:
    """Return the log segment size for a quota of the samples topic (0: no quota). Kafka deletes whole segments, never
    the active one, so the active segments of eight partitions must be small against half the quota."""
    return min(_MOST_SEGMENT, max(_LEAST_SEGMENT, quota // _SEGMENTS_IN_QUOTA)) if quota else _MOST_SEGMENT


def broker_name(number: int) -> str:
    """Return the name of a broker's part; `number` counts from 1: `kafka`, `kafka-2`, ..."""
    return numbered_name("kafka", number)


class KafkaPart(StackPart):
    """One broker, also a controller. Healthy when it answers requests and our topics exist.

    Options: `kafka_heap_mb`; `kafka_partitions` of the samples topic; `kafka_protocol` of clients, default PLAINTEXT.
    Other protocols are set up by `kafka_properties` (lines of server.properties) and `kafka_scram` (arguments of the
    format tool, one a line). Brokers and health checks use a separate listener."""

    jar_sets = ("kafka",)
    memory_mb = 900
    stop_s = 20.0

    def __init__(self, number: int = 1, brokers: int = 1) -> None:
        self.number, self.brokers, self.name = number, brokers, broker_name(number)
        ports = {"broker": 9092, "controller": 9093, "internal": 9094}
        self.ports = MappingProxyType({f"{self.name}.{what}": port + 10 * number for what, port in ports.items()})
        if number == 1:
            self.ports = MappingProxyType({f"{self.name}.{what}": port for what, port in ports.items()})
        self._topics_made = False

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        self._topics_made = False
        folder = context.folder(self.name)
        write_log4j2(folder)
        config = folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._properties(context).items()))
        if (folder / "data" / "meta.properties").exists():
            return []
        scram = [word for line in context.options.get("kafka_scram", "").splitlines() for word in ("--add-scram", line)]
        cluster = _cluster_id(context.data / "kafka-cluster")
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config), "--ignore-formatted", *scram]
        return [self._java(context, 128, *tool)]

    def command(self, context: StackContext) -> ProcessCommand:
        heap = int(context.options.get("kafka_heap_mb", "288"))
        return self._java(context, heap, "kafka.Kafka", str(context.folder(self.name) / "server.properties"))

    def check(self, context: StackContext) -> str:
        request = struct.pack(">hhih", _API_VERSIONS, 0, 1, -1)
        address = context.address(f"{self.name}.internal")
        answer = tcp_request(address, struct.pack(">i", len(request)) + request, enough=10)
        if len(answer) < 10 or struct.unpack(">ih", answer[4:10]) != (1, 0):
            return f"answered {answer[:20]!r} to a version request"
        if not self._topics_made and self.number == 1:
            # here, because the import of Kafka's client takes a fifth of a second, and no part starts before it
            from artimon.stack.topics import make_topics

            copies = min(self.brokers, REPLICATION)
            topics = platform_topics(partitions=int(context.options.get("kafka_partitions", "8")), replication=copies)
            make_topics(address, topics, {}, self.brokers)
            self._topics_made = True
        return ""

    def addresses(self, context: StackContext) -> dict[str, str]:
        return {"ARTIMON_KAFKA": kafka_address(context)} if self.number == 1 else {}

    def _java(self, context: StackContext, heap_mb: int, *arguments: str) -> ProcessCommand:
        folder = context.folder(self.name)
        argv = [
            str(context.java.program),
            *jvm_flags(heap_mb, context.temporary(self.name)),
            *context.archive_flags("kafka", context.jars / "kafka"),
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            f"-Dkafka.logs.dir={folder}",
            "-cp",
            f"{context.jars / 'kafka'}/*",
            *arguments,
        ]
        return ProcessCommand(argv)

    def _properties(self, context: StackContext) -> dict[str, str]:
        own = {what: context.address(f"{self.name}.{what}") for what in ("broker", "controller", "internal")}
        voters = [f"{n}@{context.address(f'{broker_name(n)}.controller')}" for n in range(1, self.brokers + 1)]
        protocol = context.options.get("kafka_protocol", "PLAINTEXT")
        more = [line.partition("=") for line in context.options.get("kafka_properties", "").splitlines() if line]
        copies = min(self.brokers, REPLICATION)
        safe = {"replication.factor": str(copies), "min.isr": str(max(1, copies - 1))}
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"INTERNAL://{own['internal']},CLIENT://{own['broker']},CONTROLLER://{own['controller']}",
            "advertised.listeners": f"INTERNAL://{own['internal']},CLIENT://{own['broker']}",
            "listener.security.protocol.map": f"INTERNAL:PLAINTEXT,CLIENT:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "host.name": context.host(self.name).address,
            "log.dirs": str(context.folder(self.name) / "data"),
            "auto.create.topics.enable": "false",
            "num.network.threads": "2",
            # few connections; each thread wakes three times a second
            "listener.name.internal.num.network.threads": "1",
            "listener.name.controller.num.network.threads": "1",
            # empty records keep the metadata log moving: the default is two a second, each synced
            "metadata.max.idle.interval.ms": "5000",
            "num.io.threads": "4",
            "num.recovery.threads.per.data.dir": "2",
            "background.threads": "2",
            "broker.heartbeat.interval.ms": "500",  # a restarted broker waits until its old session has expired
            "broker.session.timeout.ms": "4000",
            "message.max.bytes": str(MESSAGE_MAX_BYTES),
            "socket.request.max.bytes": str(32 * 1024 * 1024),
            "max.connections": "2000",
            "default.replication.factor": str(copies),
            "min.insync.replicas": safe["min.isr"],
            **{f"offsets.topic.{name}": value for name, value in safe.items() if name != "min.isr"},
            "offsets.topic.num.partitions": "4",
            **{f"transaction.state.log.{name}": value for name, value in safe.items()},
            "transaction.state.log.num.partitions": "4",
            **{f"share.coordinator.state.topic.{name}": value for name, value in safe.items()},
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            "log.cleaner.threads": "1",
            "log.segment.bytes": str(segment_bytes(context.settings.kafka_quota_bytes)),
            # segments that Spark releases are deleted soon, so that the quota reflects what is still needed
            "log.retention.check.interval.ms": "10000",
            "log.segment.delete.delay.ms": "1000",
            "log.initial.task.delay.ms": "5000",
            "log.index.size.max.bytes": str(2 * 1024 * 1024),
            "controlled.shutdown.enable": "true",
            **{name.strip(): value.strip() for name, _, value in more},
        }


def kafka_address(context: StackContext) -> str:
    """Return host:port of each broker of this stack, separated by commas."""
    return numbered_addresses(context, "kafka", "broker", MAX_BROKERS)


def _cluster_id(file: Path) -> str:
    """Return the cluster id of this stack: the same for every broker, and after a broker lost its disk. Not safe for
    concurrent calls; parts are prepared one after another."""
    if not file.exists():
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        file.write_text(f"A{made[1:]}")
    return file.read_text().strip()
