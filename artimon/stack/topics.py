"""Creation of the platform's topics, and migration of the samples to a topic with another number of partitions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.topic_spec import (
    MAX_GENERATIONS,
    MAX_PARTITIONS,
    REPLICATION,
    SEALED_BYTES,
    TopicSpec,
    generation,
    generation_number,
    platform_topics,
)
from artimon.runtime.process_options import Kafka, Option, StackData
from artimon.runtime.topic_check import (
    TopicsUnknownError,
    describe_topics,
    list_brokers,
    newest_generation,
    open_admin,
)
from artimon.stack.stack_errors import StackError

__all__ = ["TOPICS", "TopicError", "TopicSpec", "default_replication", "make_topics", "migrate_samples"]

TOPICS = platform_topics()
METADATA_TIMEOUT_S = 60.0
"""Timeout until all brokers know a new topic."""
_CREATE_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Kafka cluster and the prefix of the platform's topics on it."""

    kafka: Kafka
    data: StackData
    prefix: Annotated[str, Option("Prefix of the names of the topics.")] = "artimon"


@dataclass(frozen=True, slots=True)
class TopicSettings(TopicOptions):
    """Settings that the platform's topics must have."""

    replication: Annotated[
        int, Option("Replication factor (0: 3, or the number of brokers if less).", min=0, max=9)
    ] = 0
    segment_bytes: Annotated[
        int, Option("segment.bytes of the samples topic (0: the default of the brokers).", min=0)
    ] = 0

    def topics(self, partitions: int) -> Sequence[TopicSpec]:
        """Return all topics, the samples topic with `partitions` partitions. Raises TopicsUnknownError."""
        copies = self.replication or default_replication(self.kafka)
        return platform_topics(self.prefix, partitions, copies, self.segment_bytes)


class TopicError(StackError):
    """A topic cannot be created, or the samples cannot move to another one. The text says why and what to do."""


def default_replication(bootstrap: str, options: dict[str, Any] | None = None) -> int:
    """Return the default replication factor: 3, or the number of brokers if less. Raises TopicsUnknownError."""
    with closing(open_admin(bootstrap, options)) as admin:
        try:
            return min(REPLICATION, len(list_brokers(admin)))
        except (KafkaError, OSError, RuntimeError) as error:
            raise TopicsUnknownError(f"Kafka at {bootstrap} does not list its brokers: {error!r}") from error


def make_topics(
    bootstrap: str, topics: Sequence[TopicSpec] = TOPICS, options: dict[str, Any] | None = None, brokers: int = 1
) -> list[str]:
    """Create the missing ones of `topics` and wait until the brokers know them; returns the names of the new ones.
    Refuses while less than `brokers` brokers are up. `options`: client access, by default that of this process.
    Raises KafkaError, OSError, TopicsUnknownError, TopicError."""
    with closing(open_admin(bootstrap, options)) as admin:
        if brokers > 1 and len(up := list_brokers(admin)) < brokers:
            raise TopicsUnknownError(f"Kafka at {bootstrap}: {len(up)} of {brokers} brokers are up")
        present = set(admin.list_topics())
        absent = [topic for topic in topics if topic.name not in present]
        for topic in absent:
            _create(admin, topic)
        for topic in absent:
            _await_metadata(admin, topic.name, topic.partitions, SYSTEM_CLOCK)
        return [topic.name for topic in absent]


def _create(admin: Any, topic: TopicSpec) -> None:
    new = NewTopic(topic.name, topic.partitions, topic.replication, topic_configs=dict(topic.config))
    try:
        admin.create_topics([new], timeout_ms=_CREATE_TIMEOUT_MS)
    except TopicAlreadyExistsError:
        return


def migrate_samples(
    bootstrap: str, prefix: str, partitions: int, clock: Clock = SYSTEM_CLOCK, options: dict[str, Any] | None = None
) -> tuple[str, str]:
    """Create the next generation of the samples topic with `partitions` partitions and the settings of the current one,
    then seal the current one: collectors switch, readers read the old one to its end. Returns (old, new) names.

    May be repeated after a failure: a generation created by an earlier run is reused. Raises TopicError,
    TopicsUnknownError."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise TopicError(f"{partitions} partitions: use 1 to {MAX_PARTITIONS}")
    with closing(open_admin(bootstrap, options)) as admin:
        try:
            return _migrate(admin, f"{prefix}.samples", partitions, clock)
        except (KafkaError, OSError, RuntimeError, KeyError, IndexError) as error:
            raise TopicsUnknownError(f"Kafka at {bootstrap}: {error!r}; run the command again") from error


def _migrate(admin: Any, base: str, partitions: int, clock: Clock) -> tuple[str, str]:
    newest = newest_generation(admin, base)
    if newest is None:
        raise TopicError(f"topic {base} does not exist: create it with `artimon topics create`")
    number = generation_number(base, newest.name)
    old = generation(base, number)
    if newest.partitions == partitions and number > 1:
        old = generation(base, number - 1)  # an earlier run created the newest and may not have sealed this one
        if old in describe_topics(admin, [old]):
            _seal(admin, old, clock)
        return old, newest.name
    if newest.partitions == partitions:
        raise TopicError(f"{newest.name} has {partitions} partitions already")
    if number == MAX_GENERATIONS:
        raise TopicError(f"{newest.name} is the last possible generation: start with a new prefix")
    after = generation(base, number + 1)
    own = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, old)], config_filter="modified")
    config = {key: str(one["value"]) for key, one in own["topic"][old].items()}
    replication = min(len(nodes) for nodes in newest.replicas.values())
    _create(admin, TopicSpec(after, partitions, config, replication))
    _await_metadata(admin, after, partitions, clock)
    _seal(admin, old, clock)
    return old, after


def _await_metadata(admin: Any, name: str, partitions: int, clock: Clock) -> None:
    """Wait until the brokers describe the topic with a leader for each partition. The client asks a random broker, so
    2n - 1 answers in a row are required of n brokers."""
    until, wanted, told = clock.monotonic() + METADATA_TIMEOUT_S, 2 * len(list_brokers(admin)) - 1, 0
    while clock.monotonic() < until:
        found = [one for one in admin.describe_topics([name]) if not one["error_code"]]
        leaders = [one["leader_id"] for one in found[0]["partitions"]] if found else []
        told = told + 1 if len(leaders) == partitions and min(leaders) >= 0 else 0
        if told >= wanted:
            return
        clock.wait(threading.Event(), 0.0 if told else 0.2)
    raise TopicError(
        f"{name} was created, but has no leaders after {METADATA_TIMEOUT_S:.0f} s: check the brokers, run this again"
    )


def _seal(admin: Any, name: str, clock: Clock) -> None:
    """Make the leaders of a topic refuse all writes; returns once the cluster reports the setting."""
    topic, key = ConfigResource(ConfigResourceType.TOPIC, name), "max.message.bytes"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={key: str(SEALED_BYTES)})])
    until = clock.monotonic() + METADATA_TIMEOUT_S
    while clock.monotonic() < until:
        if str(admin.describe_configs([topic], config_filter="all")["topic"][name][key]["value"]) == str(SEALED_BYTES):
            return
        clock.wait(threading.Event(), 0.1)
    raise TopicError(f"{name} is not sealed after {METADATA_TIMEOUT_S:.0f} s: check the brokers, run this again")
