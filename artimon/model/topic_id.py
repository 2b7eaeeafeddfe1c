"""Topic ids as Kafka prints them."""

from __future__ import annotations

import base64
import uuid


def printed_id(topic_id: uuid.UUID | str) -> str:
    """Format a topic's UUID as Kafka does: URL-safe base64 of its 16 bytes, without padding."""
    plain = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(topic_id)
    return base64.urlsafe_b64encode(plain.bytes).decode().rstrip("=")
