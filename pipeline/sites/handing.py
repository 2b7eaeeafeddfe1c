"""How far a topic was handed over to another site. Pure: no I/O, no clock, no threads.

An offset counts as handed over once everything below it is acked at the other site; only such offsets are kept, so
whatever crashes, what was not acked is read and sent again, and the other site drops what it has by identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.acks import Position, Sent, Verdict

MAX_FLYING = 100_000
"""Messages of all partitions that wait for acks; beyond that nothing more is read."""


class Message(NamedTuple):
    """A message of the source's topic: partition and offset."""

    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class _Flying:
    offset: int
    position: Position | None = None
    since: int | None = None
    done: bool = False


@dataclass(slots=True)
class Handing:
    """Per partition: `until`, below which all is handed over, and what is on its way, in order of offsets."""

    until: dict[int, int] = field(default_factory=dict)
    compacted: bool = False
    """Offsets that are not there were replaced by later ones."""
    lost: int = 0
    """Offsets that the source no longer had when they were to be read."""
    skipped: int = 0
    """Messages that the other site will never take: they are no batches, and dead letters at the source too."""
    _next: dict[int, int] = field(default_factory=dict)
    _flying: dict[int, deque[_Flying]] = field(default_factory=dict)
    _by_offset: dict[Message, _Flying] = field(default_factory=dict)

    @property
    def room(self) -> bool:
        return len(self._by_offset) < MAX_FLYING

    @property
    def flying(self) -> int:
        return len(self._by_offset)

    def next_offset(self, partition: int) -> int:
        """Where to read on."""
        return self._next.get(partition, self.until.get(partition, 0))

    def read(self, message: Message) -> bool:
        """A message was read; False if it is not the one to go on with (it was read before)."""
        expected = self.next_offset(message.partition)
        if message.offset < expected:
            return False
        self.lost += 0 if self.compacted else message.offset - expected
        flying = _Flying(message.offset)
        self._flying.setdefault(message.partition, deque()).append(flying)
        self._by_offset[message] = flying
        self._next[message.partition] = message.offset + 1
        return True

    def placed(self, message: Message, position: Position, acked: bool) -> None:
        """The other site has it there; `acked`: and that is all that is asked for."""
        flying = self._by_offset.get(message)
        if flying is not None:
            flying.position, flying.since = position, None
            if acked:
                self._done(message, flying)

    def skip(self, message: Message) -> None:
        """It is no batch."""
        flying = self._by_offset.get(message)
        if flying is not None:
            self.skipped += 1
            self._done(message, flying)

    def sent(self) -> list[Sent[Message]]:
        """What waits for acks of the other site."""
        return [Sent(key, one.position, one.since) for key, one in self._by_offset.items() if one.position]

    def judged(self, verdict: Verdict[Message]) -> set[int]:
        """Apply what the other site published. Partitions of which something was lost there: they are read again from
        `until` on."""
        for key, version in verdict.looked:
            if key in self._by_offset:
                self._by_offset[key].since = version
        for key in verdict.acked:
            flying = self._by_offset.get(key)
            if flying is not None:
                self._done(key, flying)
        back = {key.partition for key, _ in verdict.resend if key in self._by_offset}
        for partition in back:
            self.rewind(partition)
        return back

    def rewind(self, partition: int) -> None:
        """Forget what is on its way: it is read again."""
        for flying in self._flying.pop(partition, ()):
            self._by_offset.pop(Message(partition, flying.offset), None)
        self._next.pop(partition, None)

    def _done(self, message: Message, flying: _Flying) -> None:
        flying.done = True
        line = self._flying[message.partition]
        while line and line[0].done:
            first = line.popleft()
            del self._by_offset[Message(message.partition, first.offset)]
            self.until[message.partition] = first.offset + 1


def merge_offsets(ours: Mapping[int, int], theirs: Mapping[int, int]) -> dict[int, int]:
    """What two hand-overs of the same topic know together: an offset never goes back."""
    return {p: max(ours.get(p, 0), theirs.get(p, 0)) for p in {*ours, *theirs}}
