"""Identities and addresses as text, for both ends of a hop between agents."""

from __future__ import annotations

from artimon.model.batch import BatchId
from artimon.runtime.text import parse_address
from pipeline.link.endpoints import Endpoint


def parse_id(text: str) -> BatchId | None:
    """Inverse of `str(id)`; None for anything else."""
    try:
        agent, epoch, lane, sequence = text.rsplit("/", 3)
        return BatchId(agent, int(epoch, 16), int(lane), int(sequence))
    except ValueError:
        return None


def parse_endpoint_text(text: str) -> Endpoint:
    """Parse HOST:PORT or [IPv6]:PORT. Raises ValueError."""
    return Endpoint(*parse_address(text))
