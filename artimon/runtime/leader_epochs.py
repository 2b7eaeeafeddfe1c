"""Topic ids, and end offsets of leader epochs, of Kafka."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest


def send_to_broker(admin: Any, request: Any, node: int, timeout_ms: int) -> Any:
    """Send a request to one broker and return its answer. `admin` is a KafkaAdminClient; its public interface lacks
    this call. Raises KafkaError, OSError."""
    manager = admin._manager

    async def ask() -> Any:
        return await manager.wait_for(manager.send(request, node, request_timeout_ms=timeout_ms), timeout_ms)

    return manager.run(ask)


def epoch_end_offsets(
    admin: Any,
    topic: str,
    leaders: Mapping[int, int],
    leader_epochs: Mapping[int, int],
    epochs: Mapping[int, int],
    timeout_ms: int,
) -> dict[int, tuple[int, int]]:
    """Return, for each partition of `epochs`, (error code, end offset of the messages written under its epoch or
    before), with one request for each leader. A leader answers with an error if its epoch is outdated."""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    found = {}
    for leader in {leaders[partition] for partition in epochs}:
        wanted = [
            asked.OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=leader_epochs[partition], leader_epoch=epoch
            )
            for partition, epoch in epochs.items()
            if leaders[partition] == leader
        ]
        request = OffsetForLeaderEpochRequest(topics=[asked(topic=topic, partitions=wanted)])
        for one in send_to_broker(admin, request, leader, timeout_ms).topics[0].partitions:
            found[int(one.partition)] = int(one.error_code), max(0, int(one.end_offset))
    return found


def printed_id(topic_id: uuid.UUID | str) -> str:
    """Format a topic's UUID as Kafka does: URL-safe base64 of its 16 bytes, without padding."""
    plain = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(topic_id)
    return base64.urlsafe_b64encode(plain.bytes).decode().rstrip("=")
