"""Detection of a truncated log: a broker that lost its log's end (a disk, an unclean election) gives the same offsets
to other messages. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from artimon.rawtable.table_state import END_OF_LOG, Epochs, Span, end_of_epoch

CONFIRMING_CHECKS = 2
"""Consecutive checks that must find a log that ends too early: a leader that just took over may report an end that is
too low."""
RETENTION_MS = 3600 * 1000
"""Time for which returning shards are told about a cut; their snapshots are newer after that."""


@dataclass(slots=True)
class Truncation:
    """Truncation of a partition's log at `offset`; messages there and above are new."""

    partition: int
    offset: int
    time_ms: int
    notified: set[tuple[str, str]] = field(default_factory=set)
    """(id, incarnation) of the shards that were told."""


class TruncationDetector:
    """Watches one topic, in one thread.

    A shard above a cut is rewound to it. It keeps the sequence numbers that it has seen: batches that agents resend are
    repeats, and messages at reused offsets are new. An unnecessary rewind does no harm."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.epochs: Mapping[int, Epochs] = {}
        """Leader epochs of the last check."""
        self.truncations: list[Truncation] = []
        """Cuts of the last hour."""
        self._ends: dict[int, int] = {}
        self._suspected: dict[int, int] = {}

    def check(
        self, epochs: Mapping[int, Epochs], bounds: Mapping[int, Span], furthest: Mapping[int, int], now_ms: int
    ) -> list[Truncation]:
        """Compare the present log and the greatest next offsets of the groups with the last check; return new cuts."""
        found = []
        for partition, (_, end) in bounds.items():
            read = max(self._ends.get(partition, 0), furthest.get(partition, 0))
            self._suspected[partition] = self._suspected.get(partition, 0) + 1 if end < read else 0
            reach = self._unchanged_until(partition, epochs.get(partition, ()))
            reach = min(reach, end) if self._suspected[partition] >= CONFIRMING_CHECKS else reach
            if reach < read:
                found.append(Truncation(partition, reach, now_ms))
            self._ends[partition] = end if reach < read else max(end, self._ends.get(partition, 0))
        self.epochs = dict(epochs)
        self.truncations = [cut for cut in self.truncations if now_ms - cut.time_ms < RETENTION_MS] + found
        return found

    def _unchanged_until(self, partition: int, now: Epochs) -> int:
        """Return the offset up to which the log is the same as at the last check."""
        known = self.epochs.get(partition, ())
        if not known or not now:
            return END_OF_LOG
        return 0 if known[-1][0] > now[-1][0] else end_of_epoch(now, known[-1][0])
