"""The part of the raw table's state that a refill needs: its offsets and the batches that it has seen.
docs/formats/raw.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable.head import newest_append
from artimon.rawtable.schema import TableError
from artimon.rawtable.table_state import RawState
from varstore.store.feed_groups import FeedGroup, Partition


@dataclass(frozen=True, slots=True)
class RawHead:
    """The newest append of the table, in the terms of groups of virtual shards."""

    topic_id: str
    """Id of the topic that is read."""
    positions: Mapping[Partition, int]
    lanes: LaneRanges
    last_ms: Mapping[LaneId, int]
    newest_append_ms: int
    epochs: Mapping[Partition, int] = field(default_factory=dict)
    """Newest leader epoch of each partition that the table knows."""
    is_whole: bool = True
    """True if all data of the table may still be in Kafka: it has read one topic, of which nothing was lost."""
    lost: Mapping[Partition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Offsets [start, end) below `positions` that the table never got."""

    @classmethod
    def of(cls, state: RawState) -> RawHead:
        """Return the view of a state. Raises TableError if no topic was begun."""
        if state.current is None:
            raise TableError("the raw table has not begun a topic yet")
        lanes = LaneRanges()
        for held in state.lanes.values():
            lanes.update(held)
        topics = [(topic, topic.topic_id) for topic in state.topics]
        return cls(
            state.current.topic_id,
            {Partition(id_, p): at for topic, id_ in topics for p, at in topic.until.items()},
            lanes,
            state.last_ms,
            state.newest_append_ms,
            {Partition(id_, p): known[-1][0] for topic, id_ in topics for p, known in topic.epochs.items() if known},
            len(topics) == 1 and not state.recent_gaps,
            {Partition(id_, p): spans for topic, id_ in topics for p, spans in topic.lost.items()},
        )

    def make_group(self, vshards: int) -> FeedGroup:
        """Return a group of virtual shards at the table's offsets; not ready, because the table must be read first."""
        return FeedGroup(
            vshards, dict(self.positions), self.lanes.copy(), dict(self.last_ms), dict(self.epochs), ready=False
        )


def head_of(uri: str, version: int) -> RawHead | None:
    """Return the newest append at or below a version; None if there is none. Raises TableError, OSError."""
    found = newest_append(uri, version)
    return RawHead.of(found[1]) if found is not None else None
