"""The part of the raw table's state that a refill needs: up to where it goes, and which batches it has seen.
docs/formats/raw.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artimon.model import files
from artimon.model.ranges import LaneId, LaneRanges
from varstore.groups import Group, Partition

FORMAT = 1
KEY = "artimon"
MAX_COMMITS = 10_000
"""Commits that are looked at for the newest append: others than appends are few."""


class RawTableError(RuntimeError):
    """The raw table cannot be read as docs/formats/raw.md says. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class RawHead:
    """What the newest append says of the table."""

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

    def group(self, vshards: int) -> Group:
        """Virtual shards that hold what the table holds; not ready, for it must be read first."""
        return Group(
            vshards, dict(self.positions), self.lanes.copy(), dict(self.last_ms), dict(self.epochs), ready=False
        )


def head_of(uri: str, version: int) -> RawHead | None:
    """The newest append at or below a version; None if nothing was ever appended. RawTableError, OSError."""
    for number in range(version, max(-1, version - MAX_COMMITS), -1):
        try:
            text = files.read(f"{uri}/_delta_log/{number:020d}.json")
        except FileNotFoundError as error:
            if number == 0:
                return None
            raise RawTableError(f"{uri}: commit {number} is gone, and no newer one is an append") from error
        for line in text.decode().splitlines():
            info = json.loads(line).get("commitInfo")
            if info is not None and KEY in info:
                return parse(info[KEY], uri)
    return None


def parse(state: Mapping[str, Any], where: str) -> RawHead:
    """RawTableError for what is not a state of this format."""
    if state.get("format") != FORMAT:
        raise RawTableError(f"{where}: state of format {state.get('format')}, this program reads {FORMAT}")
    lanes = LaneRanges()
    try:
        for told in state["lanes"].values():
            lanes.update(LaneRanges.from_json(told))
        topics = state["topics"]
        return RawHead(
            str(topics[-1]["topic_id"]),
            {Partition(str(t["topic_id"]), int(p)): int(at) for t in topics for p, at in t["until"].items()},
            lanes,
            {LaneId.parse(lane): int(at) for lane, at in state["lanes_last_ms"].items()},
            int(state["newest_append_ms"]),
            {
                Partition(str(t["topic_id"]), int(p)): int(known[-1][0])
                for t in topics
                for p, known in t.get("epochs", {}).items()
                if known
            },
            len(topics) == 1 and not state.get("recent_gaps"),
            {
                Partition(str(t["topic_id"]), int(p)): [(int(start), int(end)) for start, end in spans]
                for t in topics
                for p, spans in t.get("lost", {}).items()
            },
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RawTableError(f"{where}: unreadable state: {error!r}") from error
