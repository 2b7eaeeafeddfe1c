"""Topic and partition of a message, the same for every collector that carries it."""

from __future__ import annotations

import xxhash

from artimon.model.batch import BatchHeader, BatchKind
from artimon.model.routing import partition_of
from pipeline.collector.broker import Message, Writes


def message_for(broker: Writes, prefix: str, header: BatchHeader, data: bytes) -> Message:
    """Route batches by their lane, announcements by source and block. Raises BrokerError if the topic is not known."""
    if header.kind == BatchKind.SERIES:
        topic, key = f"{prefix}.series", f"{header.block}/{header.source}".encode()
        info = broker.topic(topic)
        return Message(topic, xxhash.xxh3_64_intdigest(key) % info.partitions, data, key, info.topic_id)
    topic = f"{prefix}.samples" if header.kind == BatchKind.SAMPLES else f"{prefix}.events"
    info = broker.topic(topic)
    return Message(topic, partition_of(*header.id.lane_id, info.partitions), data, None, info.topic_id)
