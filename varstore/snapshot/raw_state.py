"""The part of the raw table's state that a refill needs: up to where it goes, and which batches it has seen.
docs/formats/raw.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable.head import newest_append
from artimon.rawtable.schema import TableError
from artimon.rawtable.state import RawState
from varstore.store.groups import Group, Partition


@dataclass(frozen=True, slots=True)
class RawHead:
    """The newest append of the table, as groups of virtual shards see it."""

    topic_id: str
    """Of the topic that is read."""
    positions: Mapping[Partition, int]
    lanes: LaneRanges
    last_ms: Mapping[LaneId, int]
    newest_append_ms: int
    epochs: Mapping[Partition, int] = field(default_factory=dict)
    """The newest leader epoch that the table knows of each partition."""
    is_whole: bool = True
    """Whether all that the table holds may still stand in Kafka: it has read one topic, of which nothing was lost."""
    lost: Mapping[Partition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Offsets [start, end) below `positions` that the table never got either."""

    @classmethod
    def of(cls, state: RawState) -> RawHead:
        """View of a state. Raises TableError if no topic was begun."""
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
            len(topics) == 1 and not state.recent,
            {Partition(id_, p): spans for topic, id_ in topics for p, spans in topic.lost.items()},
        )

    def group(self, vshards: int) -> Group:
        """Virtual shards that hold what the table holds; not ready, for it must be read first."""
        return Group(
            vshards, dict(self.positions), self.lanes.copy(), dict(self.last_ms), dict(self.epochs), ready=False
        )


def head_of(uri: str, version: int) -> RawHead | None:
    """The newest append at or below a version; None if nothing was ever appended. Raises TableError, OSError."""
    found = newest_append(uri, version)
    return RawHead.of(found[1]) if found is not None else None
