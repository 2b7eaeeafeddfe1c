"""Tables of the Kafka brokers and Java processes of the demo fleet, in the names of the JMX rule sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
TIB, GIB, MIB = float(1 << 40), float(1 << 30), float(1 << 20)


@dataclass(frozen=True, slots=True)
class ServiceVariable:
    """Variable of a service: `calm` on an idle host, `calm + busy` on a full one; of a counter the growth a second."""

    name: str
    kind: str
    help: str
    calm: float
    busy: float = 0.0
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values of each label. Of their combinations the k-th has the k-th part of the value."""
    incident: tuple[str, float] | None = None
    """Name of an incident, and the value that it adds."""

    @property
    def unit(self) -> str:
        end = self.name.rpartition(".")[2]
        return end if end in ("bytes", "ms") else ""


V = ServiceVariable
HEAP, ALL_TOPICS = {"area": ("heap",)}, ("orders", "clicks", "payments", "mails")
REQUESTS = {"request": ("Produce", "FetchConsumer"), "phase": ("total", "local", "request_queue")}
SERVICES: Mapping[str, tuple[ServiceVariable, ...]] = MappingProxyType(
    {
        "jvm": (
            V("jvm.memory.used.bytes", "gauge", "Memory in use", 1 * GIB, 2.5 * GIB, HEAP),
            V("jvm.memory.max.bytes", "gauge", "Limit of the memory", 4 * GIB, 0, HEAP),
            V("jvm.gc.ms", "counter", "Time spent on garbage collections", 2, 40, {"collector": ("young", "old")}),
            V("jvm.cpu.ms", "counter", "CPU time of the process", 50, 900),
            V("jvm.threads.live", "gauge", "Threads", 80, 60),
        ),
        "kafka": (
            V("kafka.broker.bytes", "counter", "Bytes of clients", 2 * MIB, 24 * MIB, {"direction": ("out", "in")}),
            V("kafka.broker.messages", "counter", "Messages that clients wrote", 300, 6_000),
            V("kafka.topic.bytes", "counter", "Bytes of a topic", MIB, 6 * MIB,
              {"direction": ("in",), "topic": ALL_TOPICS}),
            V("kafka.log.size.bytes", "gauge", "Size of a partition", 20 * GIB, 2 * GIB,
              {"topic": ALL_TOPICS, "partition": ("0",)}),
            V("kafka.request.p99.ms", "gauge", "99th percentile of the time in a phase", 4, 60, REQUESTS),
            V("kafka.handlers.idle", "gauge", "Share of the time that request handlers are idle", 0.95, -0.5),
            V("kafka.partitions.troubled", "gauge", "Partitions in trouble", 0, 0, {"state": ("under_replicated",)}),
            V("kafka.replica.lag", "gauge", "Most messages that a replica is behind", 0, 40),
        ),
        "controller": (
            V("kafka.controller.brokers", "gauge", "Brokers by state", 1, 0, {"state": ("active",)}),
            V("kafka.controller.partitions.troubled", "gauge", "Partitions without a leader", 0, 0,
              {"state": ("offline",)}),
        ),
        "namenode": (
            V("hdfs.datanodes", "gauge", "DataNodes by state", 1, 0, {"state": ("live",)}, ("silent", -1)),
            V("hdfs.datanodes", "gauge", "DataNodes by state", 0, 0, {"state": ("dead",)}, ("silent", 1)),
            V("hdfs.capacity.bytes", "gauge", "Space of all DataNodes", 4 * TIB),
            V("hdfs.space.bytes", "gauge", "Space by use", 1.6 * TIB, 0.1 * TIB, {"state": ("used",)}),
            V("hdfs.space.bytes", "gauge", "Space by use", 2.4 * TIB, -0.1 * TIB, {"state": ("free",)}),
            V("hdfs.blocks.troubled", "gauge", "Blocks in trouble", 0, 0, {"state": ("missing",)}),
            V("hdfs.blocks.troubled", "gauge", "Blocks in trouble", 0, 3, {"state": ("under_replicated",)},
              ("silent", 1_200)),
            V("hdfs.safemode", "gauge", "1 in safe mode", 0),
            V("hdfs.namenode.operations", "counter", "Operations", 2, 50, {"op": ("locate", "stat", "list", "create")}),
            V("hdfs.rpc.mean.ms", "gauge", "Mean time of calls", 0.02, 0.1, {"phase": ("processing", "queue", "lock")}),
        ),
    }
)  # fmt: skip


def service_columns(
    service: str, activity: Floats, seconds: float, size: int, shares: Mapping[str, Floats]
) -> Iterator[tuple[str, dict[str, str], Floats]]:
    """Yield name, own labels and values of the variables of a service.

    `size`: factor of all values. `shares`: of each incident, 1 where it lasts, else 0."""
    for one in SERVICES[service]:
        for number, texts in enumerate(product(*one.labels.values()), 1):
            values = (one.calm + one.busy * activity) * size / number
            if one.incident is not None:
                name, change = one.incident
                values = values + change * shares[name]
            if one.kind == "counter":
                values = values * seconds
            yield one.name, dict(zip(one.labels, texts, strict=True)), np.round(values, 2)
