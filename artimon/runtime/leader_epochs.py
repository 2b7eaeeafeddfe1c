"""Topic ids, and end offsets of leader epochs, of Kafka."""

from __future__ import annotations

import base64
import uuid
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest


def send_to_broker(admin: Any, request: Any, node: int, timeout_ms: int) -> Any:
    """Send a request to one broker and return its answer. `admin` is a KafkaAdminClient; its public interface lacks
    this call. Raises KafkaError, OSError."""
    manager = admin._manager

    async def ask() -> Any:
        return await manager.wait_for(manager.send(request, node, request_timeout_ms=timeout_ms), timeout_ms)

    return manager.run(ask)


def epoch_end_offset(
    admin: Any, topic: str, partition: int, leader: int, leader_epoch: int, epoch: int, timeout_ms: int
) -> tuple[int, int]:
    """Return (error code, end offset of the messages written under `epoch` or before). The `leader` answers with an
    error if `leader_epoch` is outdated."""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    one = asked.OffsetForLeaderPartition(partition=partition, current_leader_epoch=leader_epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[asked(topic=topic, partitions=[one])])
    found = send_to_broker(admin, request, leader, timeout_ms).topics[0].partitions[0]
    return int(found.error_code), max(0, int(found.end_offset))


def printed_id(topic_id: uuid.UUID | str) -> str:
    """Format a topic's UUID as Kafka does: URL-safe base64 of its 16 bytes, without padding."""
    plain = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(topic_id)
    return base64.urlsafe_b64encode(plain.bytes).decode().rstrip("=")
