"""States of a batch and the single way to change them: compare and set.

The caller of a move names the state in which it saw the batch. If another thread was quicker the move changes nothing
and returns False; a move that is not in the table is a bug and raises. Not thread-safe: the owner of the batches locks.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class BatchState(Enum):
    """State of a batch."""

    WRITING = "writing"
    """Being written to the disk: not yet reported to any caller, and a crash may lose it."""
    LOGGED = "logged"
    """Accepted: fsynced, and to be sent."""
    SENDING = "sending"
    """Part of a call that has not ended."""
    SENT = "sent"
    """Kafka holds it at a known position; it waits for its ack."""
    ACKED = "acked"
    """Durable at the configured level: it may be forgotten."""
    ERROR = "error"
    """Quarantined because it is damaged or refused; `artimon wal repair --again` restores it."""


class BatchEvent(Enum):
    """Event that may change the state of a batch."""

    DURABLE = "durable"
    CLAIM = "claim"
    """A call includes the batch."""
    BACK = "back"
    """The call returned no position: no answer, or a nack."""
    PLACED = "placed"
    """The answer names its position."""
    ACK = "ack"
    RETRY = "retry"
    """Evidence that a sent batch is lost, or a command of an operator: send again."""
    ASIDE = "aside"
    AGAIN = "again"
    """An operator restores a quarantined batch."""


class InvalidTransitionError(RuntimeError):
    """The table has no such move: the caller has a bug, and nothing was changed."""


_S, _E = BatchState, BatchEvent
TRANSITIONS: dict[tuple[BatchState, BatchEvent], BatchState] = {
    (_S.WRITING, _E.DURABLE): _S.LOGGED,
    (_S.LOGGED, _E.CLAIM): _S.SENDING,
    (_S.SENDING, _E.BACK): _S.LOGGED,
    (_S.SENDING, _E.PLACED): _S.SENT,
    (_S.SENDING, _E.ACK): _S.ACKED,
    (_S.SENT, _E.ACK): _S.ACKED,
    (_S.ACKED, _E.ACK): _S.ACKED,
    (_S.SENT, _E.RETRY): _S.LOGGED,
    (_S.LOGGED, _E.RETRY): _S.LOGGED,
    (_S.SENDING, _E.RETRY): _S.SENDING,
    (_S.ACKED, _E.RETRY): _S.ACKED,
    (_S.ERROR, _E.RETRY): _S.ERROR,
    (_S.LOGGED, _E.ASIDE): _S.ERROR,
    (_S.SENDING, _E.ASIDE): _S.ERROR,
    (_S.ERROR, _E.ASIDE): _S.ERROR,
    (_S.ERROR, _E.AGAIN): _S.LOGGED,
}
"""All valid moves. A retry changes only sent batches: waiting and sending ones go anyhow, acked ones are durable, and
quarantined ones stay until an operator restores them."""


class Stateful(Protocol):
    """Object with a state."""

    state: BatchState


def transition(batch: Stateful, seen: BatchState, event: BatchEvent) -> bool:
    """Apply `event` to a batch that was seen in state `seen`. True if the state changed; False if another thread was
    quicker or the table keeps the state. Raises InvalidTransitionError."""
    after = TRANSITIONS.get((seen, event))
    if after is None:
        raise InvalidTransitionError(f"event {event.value} is invalid for a batch in state {seen.value}")
    if batch.state is not seen or after is seen:
        return False
    batch.state = after
    return True
