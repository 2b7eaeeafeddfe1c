"""Progress of the mirroring of a topic to another site. Pure: no I/O, no clock, no threads.

An offset counts as mirrored once everything below it is acked at the other site. Only such offsets are saved, so
after a crash unacked messages are read and sent again, and the other site drops repeats by identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.ack_state import AckDecision, Position, SentBatch

MAX_IN_FLIGHT = 100_000
"""Most messages of all partitions that wait for acks; at this number reading pauses."""


class SourceMessage(NamedTuple):
    """A message of the source's topic: partition and offset."""

    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class _MessageInFlight:
    offset: int
    position: Position | None = None
    since: int | None = None
    done: bool = False


@dataclass(slots=True)
class MirrorProgress:
    """By partition: `until`, below which all is mirrored, and the messages in flight, in order of offsets."""

    handed_until: dict[int, int] = field(default_factory=dict)
    compacted: bool = False
    """True for a compacted topic: absent offsets were replaced by later ones."""
    lost: int = 0
    """Offsets that the source had already deleted when they were to be read."""
    skipped: int = 0
    """Messages that the other site refuses for good: they are not batches, and dead letters at the source too."""
    _next: dict[int, int] = field(default_factory=dict)
    _in_flight: dict[int, deque[_MessageInFlight]] = field(default_factory=dict)
    _by_offset: dict[SourceMessage, _MessageInFlight] = field(default_factory=dict)

    @property
    def free_slots(self) -> bool:
        return len(self._by_offset) < MAX_IN_FLIGHT

    @property
    def in_flight(self) -> int:
        return len(self._by_offset)

    def next_offset(self, partition: int) -> int:
        """Return the next offset to read."""
        return self._next.get(partition, self.handed_until.get(partition, 0))

    def add(self, message: SourceMessage) -> bool:
        """Note that a message was read; False for a repeat, which is to be ignored."""
        expected = self.next_offset(message.partition)
        if message.offset < expected:
            return False
        self.lost += 0 if self.compacted else message.offset - expected
        flying = _MessageInFlight(message.offset)
        self._in_flight.setdefault(message.partition, deque()).append(flying)
        self._by_offset[message] = flying
        self._next[message.partition] = message.offset + 1
        return True

    def mark_placed(self, message: SourceMessage, position: Position, acked: bool) -> None:
        """Note the position at the other site; `acked`: the message needs no further ack."""
        flying = self._by_offset.get(message)
        if flying is not None:
            flying.position, flying.since = position, None
            if acked:
                self._advance(message, flying)

    def skip(self, message: SourceMessage) -> None:
        """Skip a message that is not a batch."""
        flying = self._by_offset.get(message)
        if flying is not None:
            self.skipped += 1
            self._advance(message, flying)

    def unacked(self) -> list[SentBatch[SourceMessage]]:
        """Return the messages that wait for acks of the other site."""
        return [SentBatch(key, one.position, one.since) for key, one in self._by_offset.items() if one.position]

    def apply_verdict(self, verdict: AckDecision[SourceMessage]) -> set[int]:
        """Apply the acks that the other site published. Returns the partitions with losses there, which are read again
        from `until` on."""
        for key, version in verdict.checked:
            if key in self._by_offset:
                self._by_offset[key].since = version
        for key in verdict.acked:
            flying = self._by_offset.get(key)
            if flying is not None:
                self._advance(key, flying)
        back = {key.partition for key, _ in verdict.resend if key in self._by_offset}
        for partition in back:
            self.rewind(partition)
        return back

    def rewind(self, partition: int) -> None:
        """Forget the messages in flight of a partition, which are read again."""
        for flying in self._in_flight.pop(partition, ()):
            self._by_offset.pop(SourceMessage(partition, flying.offset), None)
        self._next.pop(partition, None)

    def _advance(self, message: SourceMessage, flying: _MessageInFlight) -> None:
        flying.done = True
        line = self._in_flight[message.partition]
        while line and line[0].done:
            first = line.popleft()
            del self._by_offset[SourceMessage(message.partition, first.offset)]
            self.handed_until[message.partition] = first.offset + 1


def merge_offsets(ours: Mapping[int, int], theirs: Mapping[int, int]) -> dict[int, int]:
    """Merge the offsets of two mirrors of one topic: an offset never goes back."""
    return {p: max(ours.get(p, 0), theirs.get(p, 0)) for p in {*ours, *theirs}}
