"""The virtual shards of a process in groups that stand at the same offsets, and what each group has seen.

Pure bookkeeping: no I/O, no clock, not locked. Time is the append time of what was fed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from artimon.model.batch import BatchError
from artimon.model.feed import GROUP_CHANGED
from artimon.model.ranges import LaneId, LaneRanges
from artimon.model.vshards import from_hex, in_mask, to_hex, union
from varstore.store.frames import Frame, ImageError

FORGET_LANE_MS = 97 * 24 * 3600 * 1000
"""Lanes silent for this long are forgotten: what is polled 90 days before its append is refused by everybody."""
_FORGET_EVERY_MS = 24 * 3600 * 1000


class GroupChanged(BatchError):
    """A range for a set of virtual shards that is none of the groups. The text begins with GROUP_CHANGED."""


class Partition(NamedTuple):
    """One partition of one topic; a topic made anew has another id, and starts at 0."""

    topic_id: str
    partition: int


class Lost(NamedTuple):
    """Offsets [start, until) that Kafka deleted before a group had read them."""

    start: int
    until: int
    known_ms: int = 0
    """The greatest append time that was applied when the next batch was; 0: none was yet. What is lost was appended
    before that, or little later."""


@dataclass(slots=True, eq=False)
class Group:
    """Invariant: of the virtual shards in `vshards` every batch below `positions` that is not `lost` has been applied
    or was a repeat, and its number stands in `lanes`.

    `lanes` is shared by all partitions of all topics: what agents send again to a topic made anew is a repeat."""

    vshards: int
    """A mask, never 0 while the group is in use."""
    positions: dict[Partition, int] = field(default_factory=dict)
    """Next offsets; a partition that nothing came of is absent, and stands at 0."""
    lanes: LaneRanges = field(default_factory=LaneRanges)
    last_ms: dict[LaneId, int] = field(default_factory=dict)
    """Append time of the newest batch of each lane."""
    epochs: dict[Partition, int] = field(default_factory=dict)
    """Leader epoch of each partition, when it was last looked at: what was applied until then was written under it, or
    before. By that a log is known whose end was lost, whatever has been written there since."""
    ready: bool = True
    """Whether it holds all that its positions promise: False while older periods are still to come."""
    forgot_ms: int = 0
    """Append time at which lanes were last looked through."""
    lost: dict[Partition, Lost] = field(default_factory=dict)
    """What it never got and Kafka no longer has, until that is found elsewhere, or to be lost for everybody. Of several
    ranges of a partition all that lies between them too."""

    def next_offset(self, key: Partition) -> int:
        return self.positions.get(key, 0)

    def lose(self, key: Partition, until: int) -> None:
        """Kafka no longer has what lies below `until`. What is lost already is lost once."""
        start = self.next_offset(key)
        self.lost[key] = Lost(min(start, self.lost[key].start) if key in self.lost else start, until)

    def forget_lost(self, append_ms: int, reach_ms: int) -> None:
        """A batch was appended at `append_ms`. What was lost `reach_ms` before is of no bucket any more."""
        for key, lost in list(self.lost.items()):
            if not lost.known_ms:
                self.lost[key] = lost._replace(known_ms=append_ms)
            elif append_ms - lost.known_ms > reach_ms:
                del self.lost[key]

    def go_back(self, key: Partition, offset: int) -> None:
        """The log was cut: what stands at `offset` and above is new. What was lost before is lost all the same,
        whatever has its offsets now."""
        self.positions[key] = offset
        if key in self.lost:
            start, until, known_ms = self.lost[key]
            self.lost[key] = Lost(min(start, offset), min(until, offset), known_ms)

    def copy(self, vshards: int) -> Group:
        """The same for some of its virtual shards; nothing is shared with this one."""
        positions, last_ms, epochs = dict(self.positions), dict(self.last_ms), dict(self.epochs)
        lanes, lost = self.lanes.copy(), dict(self.lost)
        return Group(vshards, positions, lanes, last_ms, epochs, self.ready, self.forgot_ms, lost)

    def forget_lanes(self, append_ms: int) -> None:
        """Once a day of append time: lanes that were silent too long."""
        if append_ms - self.forgot_ms < _FORGET_EVERY_MS:
            return
        self.forgot_ms = append_ms
        for lane in [lane for lane, at in self.last_ms.items() if at < append_ms - FORGET_LANE_MS]:
            del self.last_ms[lane]
            self.lanes.forget(lane)

    def equals(self, other: Group, topic_id: str) -> bool:
        """Whether both may become one: they stand at the same offsets of the topic that is read, have seen the same
        batches and lack the same. (Offsets of topics that are gone do not matter then.)"""
        alike = self.ready == other.ready and self.lost == other.lost
        return alike and self._of(topic_id) == other._of(topic_id) and self.lanes == other.lanes

    def _of(self, topic_id: str) -> dict[int, int]:
        return {key.partition: at for key, at in self.positions.items() if key.topic_id == topic_id and at}

    def absorb(self, other: Group) -> None:
        """Become the union with a group that equals this one."""
        self.vshards |= other.vshards
        for key, at in other.positions.items():
            self.positions[key] = max(at, self.next_offset(key))
        for lane, at in other.last_ms.items():
            self.last_ms[lane] = max(at, self.last_ms.get(lane, 0))
        for key, epoch in other.epochs.items():
            self.epochs[key] = min(epoch, self.epochs.get(key, epoch))
        self.forgot_ms = min(self.forgot_ms, other.forgot_ms)

    def summary(self) -> dict[str, Any]:
        """What `groups()` says of it."""
        return {
            "vshards": to_hex(self.vshards),
            "positions": [[*key, at] for key, at in sorted(self.positions.items())],
            "ready": self.ready,
            **({"lost": [[*key, *lost] for key, lost in sorted(self.lost.items())]} if self.lost else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """All of it, as images and snapshots hold it."""
        return {
            **self.summary(),
            "lanes": self.lanes.to_json(),
            "lanes_last_ms": {str(lane): at for lane, at in sorted(self.last_ms.items())},
            **({"epochs": [[*key, epoch] for key, epoch in sorted(self.epochs.items())]} if self.epochs else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Group:
        """Inverse of `to_json`. ValueError, KeyError, TypeError for anything else."""
        return cls(
            from_hex(data["vshards"]),
            {Partition(str(topic), int(partition)): int(at) for topic, partition, at in data["positions"]},
            LaneRanges.from_json(data["lanes"]),
            {LaneId.parse(lane): int(at) for lane, at in data["lanes_last_ms"].items()},
            {Partition(str(topic), int(p)): int(epoch) for topic, p, epoch in data.get("epochs", ())},
            bool(data["ready"]),
            lost={Partition(str(t), int(p)): Lost(*map(int, lost)) for t, p, *lost in data.get("lost", ())},
        )

    @classmethod
    def of_frame(cls, frame: Frame) -> Group:
        """Of a part "group" of an image. ImageError."""
        try:
            return cls.from_json(json.loads(frame.columns["json"][0]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ImageError(f"unreadable group: {error!r}") from error


class Groups:
    """The groups of a process. Invariant: no virtual shard is in two of them."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._groups = list(groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def vshards(self) -> int:
        """The mask of all that is held."""
        return union(group.vshards for group in self._groups)

    @property
    def ready(self) -> int:
        """The mask of the groups that are ready."""
        return union(group.vshards for group in self._groups if group.ready)

    @property
    def lost(self) -> list[Group]:
        """Those that lack what Kafka no longer has."""
        return [group for group in self._groups if group.lost]

    def excuse(self, lost: Mapping[Partition, Lost]) -> None:
        """Exactly this is lost for everybody: groups that lack it, and nothing else, lack nothing."""
        for group in self._groups:
            if group.lost == lost:
                group.lost = {}

    def find(self, vshards: int) -> Group:
        """The group of exactly these. GroupChanged if there is no such group."""
        for group in self._groups:
            if group.vshards == vshards:
                return group
        raise GroupChanged(
            f"{GROUP_CHANGED}: none of the {len(self._groups)} groups is {to_hex(vshards)} "
            f"({len(in_mask(vshards))} virtual shards); ask for the groups again"
        )

    def add(self, group: Group) -> None:
        """One more. ValueError if one of its virtual shards is held already, or it has none."""
        twice = in_mask(group.vshards & self.vshards)
        if twice or not group.vshards:
            raise ValueError(f"virtual shards {twice} are held already" if twice else "a group without virtual shards")
        self._groups.append(group)

    def remove(self, vshards: int) -> int:
        """Take virtual shards out of whatever group holds them; the mask of those that were held."""
        held = self.vshards & vshards
        for group in self._groups:
            group.vshards &= ~vshards
        self._groups = [group for group in self._groups if group.vshards]
        return held

    def rewind(self, key: Partition, offset: int) -> None:
        """What stands at `offset` and above is new. What was seen stays seen: what comes again is a repeat."""
        for group in self._groups:
            if group.next_offset(key) > offset:
                group.go_back(key, offset)

    def other_epochs(self, topic_id: str, now: Mapping[int, int]) -> set[tuple[int, int]]:
        """(partition, epoch as a group knows it) where it is not what it is `now`."""
        known = {
            (key.partition, at) for one in self._groups for key, at in one.epochs.items() if key.topic_id == topic_id
        }
        return {(partition, epoch) for partition, epoch in known if now.get(partition, epoch) != epoch}

    def follow_epochs(
        self, topic_id: str, now: Mapping[int, int], ends: Mapping[tuple[int, int], int]
    ) -> list[tuple[Partition, int, int]]:
        """The epochs are these `now`; `ends`: where the log of an epoch of `other_epochs` ends. What was applied above
        that is in the log no longer: what stands there is new. Which groups went back in which partition, from where to
        where. (One that applied what the new leader wrote goes back too: it drops that as repeats.)"""
        back = []
        for group in self._groups:
            for partition, epoch in now.items():
                key = Partition(topic_id, partition)
                known = group.epochs.get(key, epoch)
                if known != epoch and (partition, known) not in ends:
                    continue  # it came meanwhile
                end = ends.get((partition, known), group.next_offset(key))
                if known != epoch and group.next_offset(key) > end:
                    back.append((key, group.next_offset(key), end))
                    group.go_back(key, end)
                group.epochs[key] = epoch
        return back

    def merge(self, group: Group, topic_id: str) -> None:
        """Join `group`, which was just fed from that topic, with every group that equals it now."""
        for other in [one for one in self._groups if one is not group and one.equals(group, topic_id)]:
            group.absorb(other)
            self._groups.remove(other)

    def copies(self, vshards: int) -> list[Group]:
        """Copies of the groups, reduced to these virtual shards."""
        return [group.copy(mask) for group in self._groups if (mask := group.vshards & vshards)]
