"""Groups of the virtual shards of a process: those of a group have the same offsets and have seen the same batches.

Pure bookkeeping: no I/O, no clock, not locked. Time is the append time of the batches fed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from artimon.model.batch import BatchError
from artimon.model.feed_codec import GROUP_CHANGED
from artimon.model.ranges import LaneId, LaneRanges
from artimon.model.vshards import from_hex, to_hex, union, vshards_of
from varstore.store.snapshot_frames import SnapshotFormatError, SnapshotFrame

FORGET_LANE_MS = 97 * 24 * 3600 * 1000
"""Lanes silent for 97 days are forgotten: every process refuses batches polled 90 days before their append."""
_FORGET_INTERVAL_MS = 24 * 3600 * 1000


class GroupChanged(BatchError):
    """A range is for a set of virtual shards that equals no group. The text begins with GROUP_CHANGED."""


class Partition(NamedTuple):
    """Partition of a topic; a recreated topic has another id, and starts at 0."""

    topic_id: str
    partition: int


class LostRange(NamedTuple):
    """Offsets [start, until) that Kafka deleted before a group had read them."""

    start: int
    until: int
    detected_ms: int = 0
    """Greatest append time applied when the first batch after the loss was; 0: none yet. The lost batches were appended
    before that, or little later."""


@dataclass(slots=True, eq=False)
class FeedGroup:
    """Virtual shards with the same offsets. Invariant: every batch of `vshards` below `positions` that is not `lost`
    has been applied or was a repeat, and its number is in `lanes`.

    `lanes` covers all partitions of all topics: batches that agents send again to a recreated topic are repeats."""

    vshards: int
    """Mask of virtual shards, never 0 while the group is in use."""
    positions: dict[Partition, int] = field(default_factory=dict)
    """Next offset of each partition; absent partitions start at 0."""
    lanes: LaneRanges = field(default_factory=LaneRanges)
    last_ms: dict[LaneId, int] = field(default_factory=dict)
    """Append time of the newest batch of each lane."""
    epochs: dict[Partition, int] = field(default_factory=dict)
    """Leader epoch of each partition at the last check: batches applied until then were written under it, or before.
    It reveals a truncated log even if other records were written there since."""
    ready: bool = True
    """True if everything below its positions is here; False while older periods are still to come."""
    lanes_pruned_ms: int = 0
    """Append time at which silent lanes were last removed."""
    lost: dict[Partition, LostRange] = field(default_factory=dict)
    """Ranges that it never got and Kafka deleted, until they are found elsewhere or known to be lost for every process.
    Several ranges of a partition are one that spans the gaps too."""

    def next_offset(self, key: Partition) -> int:
        return self.positions.get(key, 0)

    def mark_lost(self, key: Partition, until: int) -> None:
        """Record that Kafka deleted the offsets from the next one to `until`; extends a range lost before."""
        start = self.next_offset(key)
        self.lost[key] = LostRange(min(start, self.lost[key].start) if key in self.lost else start, until)

    def forget_lost(self, append_ms: int, reach_ms: int) -> None:
        """Forget ranges known to be lost more than `reach_ms` before `append_ms`, as no bucket is that old.
        `append_ms` is the greatest append time applied; it becomes `known_ms` of new ranges."""
        for key, lost in list(self.lost.items()):
            if not lost.detected_ms:
                self.lost[key] = lost._replace(detected_ms=append_ms)
            elif append_ms - lost.detected_ms > reach_ms:
                del self.lost[key]

    def rewind(self, key: Partition, offset: int) -> None:
        """Go back to `offset` after the log was truncated there: records from `offset` on are new.
        Ranges lost before stay lost, even if other records have their offsets now."""
        self.positions[key] = offset
        if key in self.lost:
            start, until, known_ms = self.lost[key]
            self.lost[key] = LostRange(min(start, offset), min(until, offset), known_ms)

    def copy(self, vshards: int) -> FeedGroup:
        """Return a deep copy for some of its virtual shards."""
        own: dict[str, Any] = {name: dict(getattr(self, name)) for name in ("positions", "last_ms", "epochs", "lost")}
        return replace(self, vshards=vshards, lanes=self.lanes.copy(), **own)

    def forget_lanes(self, append_ms: int) -> None:
        """Remove lanes that were silent for FORGET_LANE_MS; checked once a day of append time."""
        if append_ms - self.lanes_pruned_ms < _FORGET_INTERVAL_MS:
            return
        self.lanes_pruned_ms = append_ms
        for lane in [lane for lane, at in self.last_ms.items() if at < append_ms - FORGET_LANE_MS]:
            del self.last_ms[lane]
            self.lanes.forget(lane)

    def equals(self, other: FeedGroup, topic_id: str) -> bool:
        """True if both may be merged: same offsets of the topic that is read, same batches seen, same ranges lost.
        Offsets of other topics, which are gone, do not matter."""
        alike = self.ready == other.ready and self.lost == other.lost
        return alike and self._offsets_of(topic_id) == other._offsets_of(topic_id) and self.lanes == other.lanes

    def _offsets_of(self, topic_id: str) -> dict[int, int]:
        return {key.partition: at for key, at in self.positions.items() if key.topic_id == topic_id and at}

    def absorb(self, other: FeedGroup) -> None:
        """Merge a group that equals this one into it."""
        self.vshards |= other.vshards
        for key, at in other.positions.items():
            self.positions[key] = max(at, self.next_offset(key))
        for lane, at in other.last_ms.items():
            self.last_ms[lane] = max(at, self.last_ms.get(lane, 0))
        for key, epoch in other.epochs.items():
            self.epochs[key] = min(epoch, self.epochs.get(key, epoch))
        self.lanes_pruned_ms = min(self.lanes_pruned_ms, other.lanes_pruned_ms)

    def summary(self) -> dict[str, Any]:
        """Return its entry in `groups()`."""
        return {
            "vshards": to_hex(self.vshards),
            "positions": [[*key, at] for key, at in sorted(self.positions.items())],
            "ready": self.ready,
            **({"lost": [[*key, *lost] for key, lost in sorted(self.lost.items())]} if self.lost else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the whole group as JSON, for snapshots."""
        return {
            **self.summary(),
            "lanes": self.lanes.to_json(),
            "lanes_last_ms": {str(lane): at for lane, at in sorted(self.last_ms.items())},
            **({"epochs": [[*key, epoch] for key, epoch in sorted(self.epochs.items())]} if self.epochs else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FeedGroup:
        """Inverse of `to_json`. Raises ValueError, KeyError or TypeError for anything else."""
        return cls(
            from_hex(data["vshards"]),
            {Partition(str(topic), int(partition)): int(at) for topic, partition, at in data["positions"]},
            LaneRanges.from_json(data["lanes"]),
            {LaneId.parse(lane): int(at) for lane, at in data["lanes_last_ms"].items()},
            {Partition(str(topic), int(p)): int(epoch) for topic, p, epoch in data.get("epochs", ())},
            bool(data["ready"]),
            lost={Partition(str(t), int(p)): LostRange(*map(int, lost)) for t, p, *lost in data.get("lost", ())},
        )

    @classmethod
    def from_frame(cls, frame: SnapshotFrame) -> FeedGroup:
        """Decode a part "group" of a snapshot. Raises SnapshotFormatError."""
        try:
            return cls.from_json(json.loads(frame.columns["json"][0]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise SnapshotFormatError(f"unreadable group: {error!r}") from error


class FeedGroups:
    """Groups of a process. Invariant: no virtual shard is in two of them."""

    def __init__(self, groups: Iterable[FeedGroup] = ()) -> None:
        self._groups = list(groups)

    def __iter__(self) -> Iterator[FeedGroup]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def vshards(self) -> int:
        """Mask of all virtual shards held."""
        return union(group.vshards for group in self._groups)

    @property
    def ready(self) -> int:
        """Mask of the virtual shards of groups that are ready."""
        return union(group.vshards for group in self._groups if group.ready)

    @property
    def lost(self) -> list[FeedGroup]:
        """Groups that lack ranges that Kafka deleted."""
        return [group for group in self._groups if group.lost]

    def clear_lost(self, lost: Mapping[Partition, LostRange]) -> None:
        """Clear the lost ranges of groups that lack exactly `lost`, which no process has."""
        for group in self._groups:
            if group.lost == lost:
                group.lost = {}

    def get(self, vshards: int) -> FeedGroup:
        """Return the group of exactly these virtual shards. Raises GroupChanged if none matches."""
        for group in self._groups:
            if group.vshards == vshards:
                return group
        raise GroupChanged(
            f"{GROUP_CHANGED}: none of the {len(self._groups)} groups is {to_hex(vshards)} "
            f"({len(vshards_of(vshards))} virtual shards); ask for the groups again"
        )

    def add(self, group: FeedGroup) -> None:
        """Add a group. Raises ValueError if one of its virtual shards is held already, or it has none."""
        twice = vshards_of(group.vshards & self.vshards)
        if twice or not group.vshards:
            raise ValueError(f"virtual shards {twice} are held already" if twice else "the group has no virtual shards")
        self._groups.append(group)

    def remove(self, vshards: int) -> int:
        """Remove virtual shards from the groups that hold them; return the mask of those that were held."""
        held = self.vshards & vshards
        for group in self._groups:
            group.vshards &= ~vshards
        self._groups = [group for group in self._groups if group.vshards]
        return held

    def rewind(self, key: Partition, offset: int) -> None:
        """Go back to `offset` in every group beyond it. Batches seen stay seen: they are repeats if they come again."""
        for group in self._groups:
            if group.next_offset(key) > offset:
                group.rewind(key, offset)

    def other_epochs(self, topic_id: str, now: Mapping[int, int]) -> set[tuple[int, int]]:
        """Return (partition, epoch known to a group) for every known epoch that differs from `now`."""
        known = {
            (key.partition, at) for one in self._groups for key, at in one.epochs.items() if key.topic_id == topic_id
        }
        return {(partition, epoch) for partition, epoch in known if now.get(partition, epoch) != epoch}

    def follow_epochs(
        self, topic_id: str, now: Mapping[int, int], ends: Mapping[tuple[int, int], int]
    ) -> list[tuple[Partition, int, int]]:
        """Set the leader epochs to `now` and go back in partitions whose log was truncated below the next offset.
        ends: end offset of the log of each epoch of `other_epochs`; records applied above it are gone, and those there
        now are new. Returns (partition, from, to) of each step back. A group that already applied records of the new
        leader goes back too; it drops them as repeats."""
        back = []
        for group in self._groups:
            for partition, epoch in now.items():
                key = Partition(topic_id, partition)
                known = group.epochs.get(key, epoch)
                if known != epoch and (partition, known) not in ends:
                    continue  # this epoch became known after `ends` was read
                end = ends.get((partition, known), group.next_offset(key))
                if known != epoch and group.next_offset(key) > end:
                    back.append((key, group.next_offset(key), end))
                    group.rewind(key, end)
                group.epochs[key] = epoch
        return back

    def merge(self, group: FeedGroup, topic_id: str) -> None:
        """Merge every group that equals `group`, which was just fed from that topic, into it."""
        for other in [one for one in self._groups if one is not group and one.equals(group, topic_id)]:
            group.absorb(other)
            self._groups.remove(other)

    def copies(self, vshards: int) -> list[FeedGroup]:
        """Return copies of the groups, restricted to these virtual shards."""
        return [group.copy(mask) for group in self._groups if (mask := group.vshards & vshards)]
