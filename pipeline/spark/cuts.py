"""Whether the log still is what the shards were fed: a broker that lost its log's end (a disk, an unclean election)
gives the same offsets again to other messages. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from artimon.rawtable.state import END_OF_LOG, Epochs, Span, end_of_epoch

LOOKS = 2
"""So many looks, one after another, must find a log that ends too early: a leader that just took over may tell an end
that is not its last word."""
REMEMBERED_MS = 3600 * 1000
"""So long a shard that comes (back) is told of a cut: by then its snapshots are younger."""


@dataclass(slots=True)
class Cut:
    """The log of a partition ended at `offset`; what stands there and above is new."""

    partition: int
    offset: int
    time_ms: int
    told: set[tuple[str, str]] = field(default_factory=set)
    """(id, incarnation) of the shards that have heard of it."""


class Cuts:
    """Watches one topic, in one thread.

    A shard that stands above a cut is rewound to it. It keeps the numbers that it has seen, so that what agents send
    again is a repeat, and what stands at reused offsets is new; to be rewound in vain does no harm."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.epochs: Mapping[int, Epochs] = {}
        """Leader epochs as they were at the last look."""
        self.known: list[Cut] = []
        """Those of the last hour."""
        self._ends: dict[int, int] = {}
        self._short: dict[int, int] = {}

    def look(
        self, epochs: Mapping[int, Epochs], bounds: Mapping[int, Span], furthest: Mapping[int, int], now_ms: int
    ) -> list[Cut]:
        """What the log is now, and the greatest next offset of any group in each partition. New cuts."""
        found = []
        for partition, (_, end) in bounds.items():
            read = max(self._ends.get(partition, 0), furthest.get(partition, 0))
            self._short[partition] = self._short.get(partition, 0) + 1 if end < read else 0
            reach = self._reach(partition, epochs.get(partition, ()))
            reach = min(reach, end) if self._short[partition] >= LOOKS else reach
            if reach < read:
                found.append(Cut(partition, reach, now_ms))
            self._ends[partition] = end if reach < read else max(end, self._ends.get(partition, 0))
        self.epochs = dict(epochs)
        self.known = [cut for cut in self.known if now_ms - cut.time_ms < REMEMBERED_MS] + found
        return found

    def _reach(self, partition: int, now: Epochs) -> int:
        """Up to where the log is what it was at the last look."""
        known = self.epochs.get(partition, ())
        if not known or not now:
            return END_OF_LOG
        return 0 if known[-1][0] > now[-1][0] else end_of_epoch(now, known[-1][0])
