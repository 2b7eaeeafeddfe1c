"""The topics of the platform, made once and never changed: another number of partitions would be another topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

_DAY_MS = 24 * 3600 * 1000
_APPEND_TIME = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(1024 * 1024)}


@dataclass(frozen=True, slots=True)
class Topic:
    """Name, partitions and configuration of one topic."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


# Samples and events never end by age: nothing unread is deleted; the raw query deletes what the table holds.
# Dead letters end where a replay would be refused as too old anyway: 90 days.
TOPICS = (
    Topic("artimon.samples", 8, {**_APPEND_TIME, "retention.ms": "-1"}),
    Topic(
        "artimon.series",
        8,
        {**_APPEND_TIME, "cleanup.policy": "compact,delete", "retention.ms": str(8 * _DAY_MS)},
    ),
    Topic("artimon.events", 4, {**_APPEND_TIME, "retention.ms": "-1"}),
    Topic("artimon.deadletters", 1, {**_APPEND_TIME, "retention.ms": str(90 * _DAY_MS)}),
)


def make_topics(bootstrap: str, topics: tuple[Topic, ...] = TOPICS) -> list[str]:
    """Create those of `topics` that are missing; returns the names of the new ones. Raises KafkaError, OSError."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=20_000)
    try:
        missing = [topic for topic in topics if topic.name not in set(admin.list_topics())]
        for topic in missing:
            new = NewTopic(topic.name, topic.partitions, 1, topic_configs=dict(topic.config))
            try:
                admin.create_topics([new], timeout_ms=15_000)
            except TopicAlreadyExistsError:
                continue
        return [topic.name for topic in missing]
    finally:
        admin.close()
