"""Freshness of the virtual shards of a process: which are whole, and which lag behind Kafka. Pure: no I/O; the caller
brings the time (seconds of the monotonic clock)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from artimon.model.topic_spec import MAX_PARTITIONS
from artimon.model.vshards import from_hex, union

LAG_S = 15.0
"""Age in seconds of an unreached log end above which a virtual shard lags: its answers lack samples."""
GAP_S = 10.0
"""Pause between two checks after which the process was stopped: it does not know what it lacks."""
MAX_ENDS = 1_000
"""Maximum number of log ends remembered: half an hour at one in two seconds. A longer lag counts from the oldest."""


class GroupPosition(NamedTuple):
    """One group of the shard with its positions in the topic that is read now."""

    vshards: int
    next_offsets: Mapping[int, int]
    ready: bool
    """True if it holds all that its positions promise."""
    has_lost: bool = False
    """True if Kafka deleted messages before they were read."""

    @property
    def is_sound(self) -> bool:
        """True if the group can be whole."""
        return self.ready and not self.has_lost


def partition_number(place: int, partition: int) -> int:
    """Return a number for a partition, unique over all generations of the topic; the newest (`place` 0) keeps its own.

    >>> partition_number(0, 3), partition_number(1, 3)
    (3, -4)
    """
    return partition if place == 0 else -1 - MAX_PARTITIONS * (place - 1) - partition


def group_positions(groups: Iterable[Mapping[str, Any]], topic_ids: Sequence[str]) -> list[GroupPosition]:
    """Return the standings of a shard's groups, given as by `Shard.groups`. `topic_ids`: generations of the topic,
    newest first."""
    places = {topic_id: place for place, topic_id in enumerate(topic_ids)}
    return [
        GroupPosition(
            from_hex(group["vshards"]),
            {partition_number(places[topic], p): at for topic, p, at in group["positions"] if topic in places},
            bool(group["ready"]),
            "lost" in group,
        )
        for group in groups
    ]


class LogEndOffsets(NamedTuple):
    """Ends of the log of a topic when it was last seen."""

    topic_id: str
    ends: Mapping[int, int]


@dataclass(slots=True)
class _CatchUpTarget:
    """Virtual shards that are whole once they reach `ends` and reading `readings` of the announcements is done."""

    vshards: int
    ends: LogEndOffsets
    pass_number: int


class Freshness:
    """Locks: `_lock` guards everything; nothing else is called under it.

    An adopted virtual shard is whole ("ready") once its group has reached the end that Kafka had after the adoption,
    and announcements have been read anew since. It stays so until Kafka deletes messages that it has not read; a later
    lag does not change it."""

    def __init__(self, now_s: float) -> None:
        self._lock = threading.Lock()
        self._fresh_ends: deque[tuple[float, LogEndOffsets]] = deque()
        """(earliest time of these ends, ends of the log), oldest first, without ends that all groups have reached."""
        self._newest: LogEndOffsets | None = None
        self._asked_s, self._looked_s = now_s, now_s
        self._resumed_s: float | None = None
        self._unchecked = 0
        """Mask of adopted virtual shards for which Kafka was not asked since."""
        self._targets: list[_CatchUpTarget] = []
        self._groups: tuple[GroupPosition, ...] = ()
        self._held = self._ready = self._lagging = 0
        self._required_pass = 0
        self._lag_s = 0.0

    def update_ends(self, topic_id: str, ends: Mapping[int, int], asked_s: float, now_s: float) -> None:
        """Record the log ends that Kafka answered to a request made at `asked_s`."""
        with self._lock:
            found = LogEndOffsets(topic_id, dict(ends))
            # after a pause: the log may have ended there since the pause began
            since = self._asked_s if asked_s - self._asked_s > GAP_S else asked_s
            if self._newest is not None and found != self._newest and len(self._fresh_ends) < MAX_ENDS:
                self._fresh_ends.append((since, found))
            self._newest, self._asked_s = found, asked_s
            if self._resumed_s is not None and asked_s >= self._resumed_s:
                self._resumed_s = None
            if self._unchecked:
                self._targets.append(_CatchUpTarget(self._unchecked, found, self._required_pass))
                self._unchecked = 0
            self._update_lagging(now_s)

    def update_groups(self, standings: Sequence[GroupPosition], readings: int, read: int, now_s: float) -> None:
        """Record the present groups. `readings`: number of the reading of announcements that covers all adopted virtual
        shards; `read`: the last one that was completed."""
        with self._lock:
            if now_s - self._looked_s > GAP_S:
                self._resumed_s = now_s
            self._looked_s = now_s
            self._groups = tuple(standings)
            self._required_pass = readings
            held = union(standing.vshards for standing in standings)
            lost = union(standing.vshards for standing in standings if standing.has_lost)
            for target in self._targets:
                target.vshards &= held & ~lost
            targets = union(target.vshards for target in self._targets)
            self._ready &= union(standing.vshards for standing in standings if standing.is_sound)
            self._held = held
            self._unchecked = held & ~lost & ~self._ready & ~targets
            self._complete_targets(read)
            self._update_lagging(now_s)

    def _complete_targets(self, read: int) -> None:
        for target in self._targets:
            if read < target.pass_number:
                continue
            for standing in self._groups:
                if standing.is_sound and _has_reached(standing, target.ends):
                    self._ready |= target.vshards & standing.vshards
                    target.vshards &= ~standing.vshards
        self._targets = [target for target in self._targets if target.vshards]

    def _update_lagging(self, now_s: float) -> None:
        """Find the lagging virtual shards; forget ends that all groups have reached."""
        whole = [standing for standing in self._groups if standing.vshards & self._ready]
        while self._fresh_ends and all(_has_reached(s, self._fresh_ends[0][1]) for s in whole):
            self._fresh_ends.popleft()
        self._lagging, self._lag_s = 0, 0.0
        for standing in whole:
            since = next((at for at, ends in self._fresh_ends if not _has_reached(standing, ends)), now_s)
            self._lag_s = max(self._lag_s, now_s - since)
            if now_s - since > LAG_S:
                self._lagging |= standing.vshards

    # results

    @property
    def ready(self) -> int:
        """Mask of the virtual shards that are whole."""
        with self._lock:
            return self._ready

    @property
    def lagging(self) -> int:
        """Mask of the whole virtual shards that lag."""
        with self._lock:
            return self._lagging & self._ready

    @property
    def held(self) -> int:
        """Mask of all virtual shards held at the last check."""
        with self._lock:
            return self._held

    def is_unknown(self, now_s: float) -> bool:
        """Return True if the process was stopped and does not know yet what it missed."""
        with self._lock:
            return self._resumed_s is not None or now_s - self._looked_s > GAP_S

    def lag_s(self) -> float:
        """Return the lag in seconds of the whole virtual shard that lags most."""
        with self._lock:
            return self._lag_s

    def missing(self, vshards: int | None = None) -> int:
        """Return the number of messages that those of these virtual shards lack that are not whole yet."""
        with self._lock:
            return sum(
                max(0, end - standing.next_offsets.get(partition, 0))
                for target in self._targets
                for standing in self._groups
                if standing.vshards & target.vshards & (-1 if vshards is None else vshards)
                for partition, end in target.ends.ends.items()
            )


def _has_reached(standing: GroupPosition, ends: LogEndOffsets) -> bool:
    return all(standing.next_offsets.get(partition, 0) >= end for partition, end in ends.ends.items())
