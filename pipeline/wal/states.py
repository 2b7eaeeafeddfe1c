"""Where a batch stands, and the only way it gets from one state to another: compare, then set.

Whoever moves a batch says in which state it saw it. If somebody was quicker the move does nothing and says so; what the
table does not know is a mistake of ours and raises. Not thread-safe: the owner of the batches locks.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class State(Enum):
    """Where a batch stands."""

    WRITING = "writing"
    """On its way to the disk: nobody has been told, a crash may take it."""
    LOGGED = "logged"
    """Accepted: fsynced, and to be sent."""
    SENDING = "sending"
    """In a call that has not ended."""
    SENT = "sent"
    """Kafka holds it at a known position; it waits for its ack."""
    ACKED = "acked"
    """Durable at the configured level: it may be forgotten."""
    ERROR = "error"
    """Set aside, since it is damaged or nobody takes it; `artimon wal repair --again` brings it back."""


class Event(Enum):
    """What happens to a batch."""

    DURABLE = "durable"
    CLAIM = "claim"
    """A call takes it along."""
    BACK = "back"
    """The call brought no position: no answer, or a nack."""
    PLACED = "placed"
    """The answer names its position."""
    ACK = "ack"
    RETRY = "retry"
    """Evidence that what was sent is lost, or an operator's wish: send again."""
    ASIDE = "aside"
    AGAIN = "again"
    """A person brings back what was set aside."""


class UnexpectedMove(RuntimeError):
    """No batch in this state can meet with this: the caller is wrong, and nothing was changed."""


_S, _E = State, Event
TABLE: dict[tuple[State, Event], State] = {
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
"""All that can happen. A retry changes only what was sent: what waits or is on its way goes anyhow, what is acked is
durable, what was set aside stays until a person brings it back."""


class Standing(Protocol):
    """Anything that has a state."""

    state: State


def move(batch: Standing, seen: State, event: Event) -> bool:
    """`event` happens to a batch that was seen in `seen`. True: its state is another one now. False: nothing changed,
    because somebody was quicker or the table says so. Raises UnexpectedMove."""
    after = TABLE.get((seen, event))
    if after is None:
        raise UnexpectedMove(f"a batch that is {seen.value} cannot meet with {event.value}")
    if batch.state is not seen or after is seen:
        return False
    batch.state = after
    return True
