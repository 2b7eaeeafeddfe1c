"""Specification of the platform's topics, and its differences to existing topics. Pure: no I/O.

Another number of partitions of samples requires a new topic, the next generation: `artimon.samples`, then
`artimon.samples.2`, and so on. Generations are read in this order, each to its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

DAY_MS = 24 * 3600 * 1000
MESSAGE_BYTES = 1024 * 1024
"""Minimum of `max.message.bytes`: a collector writes record batches of up to 1,000,000 bytes."""
MAX_GENERATIONS = 32
"""Generations that a process tries by name."""
SEALED_BYTES = 0
"""`max.message.bytes` of a topic replaced by a newer generation: its leaders refuse every write."""
MAX_PARTITIONS = 1_024
REPLICATION = 3
"""Replicas of each partition if there are enough brokers."""
_APPEND_TIME = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(MESSAGE_BYTES)}
_CONFIGS = "kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {name}"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Name, partitions, configuration and replication of one topic."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int = 1
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reason of each setting, by its name."""
    vital: frozenset[str] = frozenset()
    """Settings that a process requires: without them it would write or read wrong data."""
    fixed: bool = False
    """True if the number of partitions must never change."""


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """An existing topic as the cluster describes it."""

    name: str
    partitions: int
    replicas: Mapping[int, Sequence[int]]
    """Brokers by partition."""
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between an existing topic and its specification."""

    topic: str
    text: str
    command: str
    """Command that repairs it; "" if there is none."""
    vital: bool = False

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.text}" + (f"; fix: {self.command}" if self.command else "")


def generation(base: str, number: int) -> str:
    """Return the name of a generation of the topic `base`, counted from 1.

    >>> generation("artimon.samples", 1), generation("artimon.samples", 2)
    ('artimon.samples', 'artimon.samples.2')
    """
    return base if number == 1 else f"{base}.{number}"


def generations(base: str) -> list[str]:
    """Return the names of all generations of a topic, oldest first."""
    return [generation(base, number) for number in range(1, MAX_GENERATIONS + 1)]


def generation_number(base: str, name: str) -> int:
    """Inverse of `generation`."""
    return 1 if name == base else int(name.removeprefix(f"{base}."))


def generations_until(base: str, newest: str) -> list[str]:
    """Return the generation `newest` of a topic and its predecessors, oldest first."""
    return [generation(base, number) for number in range(1, generation_number(base, newest) + 1)]


_REASONS = {
    "message.timestamp.type": "append time decides what is late, and names the hours of the table",
    "max.message.bytes": "collectors write record batches of up to 1,000,000 bytes",
    "retention.ms": "Kafka would drop unread messages, or keep all for ever",
    "retention.bytes": "Kafka would drop unread messages",
    "cleanup.policy": "compaction of samples would lose them, a topic of series without it grows for ever, and "
    "a topic of alerts would lose its state",
    "min.insync.replicas": "number of brokers that must hold an acknowledged batch",
}


_ALERTS = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "max.message.bytes": str(16 * MESSAGE_BYTES),
    "segment.ms": str(6 * 3600 * 1000),
    "segment.bytes": str(64 * MESSAGE_BYTES),
}
"""State of a pair of alert engines: its newest rows for ever. Only closed segments are compacted."""


def platform_topics(
    prefix: str = "artimon", partitions: int = 8, replication: int = 1, segment_bytes: int = 0
) -> tuple[TopicSpec, ...]:
    """Return the topics of one platform. Samples and events have no retention time: the raw query deletes them once the
    table holds them. Dead letters are kept for 90 days; later replays are refused as too old."""
    kept = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    segments = {"segment.bytes": str(segment_bytes)} if segment_bytes else {}
    vital = frozenset({"message.timestamp.type", "max.message.bytes"})
    isr = {"min.insync.replicas": str(max(1, replication - 1))}

    def made(
        name: str, count: int, config: Mapping[str, str], strict: frozenset[str], fixed: bool = False
    ) -> TopicSpec:
        return TopicSpec(
            f"{prefix}.{name}", count, {**_APPEND_TIME, **isr, **config}, replication, _REASONS, strict, fixed
        )

    return (  # partitions 0: any number
        made("samples", partitions, {**kept, **segments}, vital | {"cleanup.policy"}, True),
        made("series", 8, {"cleanup.policy": "compact,delete", "retention.ms": str(8 * DAY_MS)}, vital),
        made("events", 4, kept, frozenset({"max.message.bytes"}), True),
        made("deadletters", 1, {"retention.ms": str(90 * DAY_MS)}, frozenset({"max.message.bytes"})),
        made("alerts", 1, _ALERTS, frozenset({"max.message.bytes", "cleanup.policy"}), True),
    )


def differences(wanted: TopicSpec, found: ExistingTopic, bootstrap: str) -> list[Difference]:
    """Return each difference with the command that repairs it."""
    change = _CONFIGS.format(bootstrap=bootstrap, name=found.name)
    told = []
    for name, value in wanted.config.items():
        real = found.config.get(name)
        if real is not None and not _is_enough(name, value, real):
            kept = name == "cleanup.policy" and "compact" not in real and value != "compact"
            vital = name in wanted.vital and not kept
            text = f"{name} is {real}, it must be {value} ({wanted.reasons.get(name, 'as created')})"
            told.append(Difference(found.name, text, f"{change} --add-config {name}=[{value}]", vital))
    return [
        *told,
        *_replication_differences(wanted, found, bootstrap),
        *_partition_differences(wanted, found, bootstrap),
    ]


def _is_enough(name: str, wanted: str, real: str) -> bool:
    if name in ("max.message.bytes", "min.insync.replicas"):
        return int(real) >= int(wanted)
    if name == "segment.bytes":
        return int(real) <= int(wanted)
    return set(wanted.split(",")) == set(real.split(","))


def _replication_differences(wanted: TopicSpec, found: ExistingTopic, bootstrap: str) -> list[Difference]:
    told = []
    least = min((len(set(nodes)) for nodes in found.replicas.values()), default=0)
    isr = int(found.config.get("min.insync.replicas", "1"))
    if isr > least > 0:
        text = f"min.insync.replicas is {isr} and a partition has {least} replicas: nothing can be written"
        change = _CONFIGS.format(bootstrap=bootstrap, name=found.name)
        told.append(
            Difference(found.name, text, f"{change} --add-config min.insync.replicas={max(1, least - 1)}", True)
        )
    if least < wanted.replication:
        brokers = sorted({node for nodes in found.replicas.values() for node in nodes})
        text = f"a partition has {least} replicas, {wanted.replication} are required: a lost disk may lose data"
        command = f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute --reassignment-json-file FILE"
        plan = reassignment(found, wanted.replication, brokers)
        told.append(Difference(found.name, text, f"{command}   (FILE: {plan})"))
    return told


def reassignment(found: ExistingTopic, replication: int, brokers: Sequence[int]) -> str:
    """Return JSON for kafka-reassign-partitions with `replication` replicas of each partition; BROKER stands for
    brokers yet to be added."""
    rows = []
    for partition, nodes in sorted(found.replicas.items()):
        turn = [brokers[(partition + i) % len(brokers)] for i in range(len(brokers))] if brokers else []
        kept: list[int | str] = [*dict.fromkeys([*nodes, *turn])]
        kept = kept[:replication]
        kept += ["BROKER"] * (replication - len(kept))
        rows.append({"topic": found.name, "partition": partition, "replicas": kept})
    return json.dumps({"version": 1, "partitions": rows})


def _partition_differences(wanted: TopicSpec, found: ExistingTopic, bootstrap: str) -> list[Difference]:
    if wanted.partitions in (0, found.partitions):
        return []
    text = f"it has {found.partitions} partitions, {wanted.partitions} are configured"
    if wanted.name.endswith(".samples"):
        return [Difference(found.name, text, f"artimon topics grow --partitions {wanted.partitions}")]
    if wanted.fixed or found.partitions > wanted.partitions:
        return [Difference(found.name, f"{text}; the number cannot change while the topic is in use", "")]
    command = f"kafka-topics.sh --bootstrap-server {bootstrap} --alter --topic {found.name} --partitions"
    return [Difference(found.name, text, f"{command} {wanted.partitions}")]


def missing_topic(name: str) -> Difference:
    """Return the difference of a topic that does not exist."""
    return Difference(name, "it does not exist", "artimon topics create", True)


def vital(found: Iterable[Difference]) -> list[Difference]:
    """Return the differences that prevent a process from starting."""
    return [one for one in found if one.vital]
