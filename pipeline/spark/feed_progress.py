"""Positions of the buckets query and of every group of virtual shards. Pure bookkeeping under one lock, without
requests to servers."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artimon.model.vshards import union
from artimon.rawtable.table_state import Span
from pipeline.control.shard_directory import GroupOffsets, ShardGroup, ShardInfo
from pipeline.spark.feed_task import FeedOutcome, FeedResult

log = logging.getLogger(__name__)

MAX_UNREACHED = 1_000


@dataclass(slots=True)
class _GroupOffsets:
    """One group. `next` is its shard's answer; absent partitions are at 0."""

    group: ShardGroup
    next: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _ShardState:
    """One shard. `doubtful`: it failed or its groups changed; nothing is sent before it is asked."""

    shard: ShardInfo
    groups: list[_GroupOffsets] = field(default_factory=list)
    is_doubtful: bool = False
    changed: bool = False
    """True if it answers but its groups changed: ask it at once."""
    error: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("applied", "repeated", "late", "future"), 0))

    @property
    def vshards(self) -> int:
        """Mask of the virtual shards of all its groups."""
        return union(standing.group.vshards for standing in self.groups)


class FeedProgress:
    """Locks: `_lock` guards everything; no I/O under it.

    Invariant: a group is fed live in a partition only if its next offset is at or above the query's position there."""

    def __init__(self, partitions: int) -> None:
        self._lock = threading.Lock()
        self._partitions = partitions
        self._position: dict[int, int] = {}
        self._shards: dict[str, _ShardState] = {}
        self._log_end: dict[int, int] = {}
        self._unreached: deque[tuple[int, dict[int, int]]] = deque()
        """Log ends seen, as (time in ms, ends), oldest first; only those that the query has not reached."""
        self._lagging_since: dict[str, int] = {}
        """Time in ms since which each lagging shard lacks messages, updated by `figures`."""
        self._ranges = self._runs = self._refused = 0
        self._run_ms = self._runs_ms = 0.0
        self._refills = 0
        self._refill_ms = self._refills_ms = 0.0

    # answers of shards

    def record_groups(self, shard: ShardInfo, groups: GroupOffsets) -> None:
        """Record the answer of a shard: all its groups."""
        with self._lock:
            process = self._shards.get(shard.id)
            if process is None or process.shard != shard:
                process = self._shards[shard.id] = _ShardState(shard)
            process.shard = shard
            process.groups = [_GroupOffsets(group, dict(at)) for group, at in groups]
            process.is_doubtful, process.changed, process.error = False, False, ""

    def has_groups(self) -> bool:
        """Return True if at least one group is known."""
        with self._lock:
            return any(True for _ in self._all())

    def retain(self, live: Mapping[str, ShardInfo]) -> None:
        """Forget shards that are not in `live`."""
        with self._lock:
            for id_ in [id_ for id_ in self._shards if id_ not in live]:
                log.warning("buckets: shard %s is gone", id_)
                del self._shards[id_]

    def shards_to_ask(self, live: Mapping[str, ShardInfo]) -> list[ShardInfo]:
        """Return the live shards to ask for their groups: new and doubtful ones, those that registered other virtual
        shards than their groups, and those that registered a lag that is not known here."""
        with self._lock:
            return [shard for shard in live.values() if self._must_ask(shard)]

    def _must_ask(self, shard: ShardInfo) -> bool:
        process = self._shards.get(shard.id)
        if process is None or process.shard != shard or process.is_doubtful:
            return True
        if (
            shard.is_lagging
            and self._has_fed_all()
            and not any(self._lagging_partitions(one) for one in process.groups)
        ):
            return True  # it rewound by itself, because the log was cut
        return shard.vshards is not None and shard.vshards != process.vshards

    def changed(self) -> list[ShardInfo]:
        """Return shards that refused a range because their groups changed."""
        with self._lock:
            return [process.shard for process in self._shards.values() if process.changed]

    def mark_doubtful(self, groups: Iterable[ShardGroup]) -> None:
        """Ask the shards of these groups before anything more is sent: something failed."""
        with self._lock:
            for group in groups:
                if group.shard.id in self._shards:
                    self._shards[group.shard.id].is_doubtful = True

    # the query itself

    def start_position(self, bounds: Mapping[int, Span]) -> dict[int, int]:
        """Return, for each partition, the greatest next offset of any group, clamped to the log."""
        with self._lock:
            for partition, (start, end) in bounds.items():
                furthest = max(s.next.get(partition, 0) for s in self._all())
                self._position[partition] = min(max(furthest, start), end)
            return dict(self._position)

    def pass_deleted(self, bounds: Mapping[int, Span]) -> None:
        """Move the query to the start of the log where its position is below."""
        with self._lock:
            for partition, position in self._position.items():
                self._position[partition] = max(position, bounds[partition][0])

    def set_position(self, ends: Mapping[int, int]) -> None:
        """Set the position to `ends` without reading: every group is to catch up to these offsets."""
        with self._lock:
            self._position = dict(ends)

    def is_confirmed(self, shard: ShardInfo) -> bool:
        """Return True if the shard told its groups and nothing failed since."""
        with self._lock:
            process = self._shards.get(shard.id)
            return process is not None and process.shard == shard and not process.is_doubtful

    def groups(self) -> list[ShardGroup]:
        """Return the groups that may be sent to."""
        with self._lock:
            return [standing.group for standing in self._confirmed()]

    def lagging_groups(self) -> frozenset[tuple[str, int]]:
        """Return each (key of a group, partition) that must not be fed live."""
        with self._lock:
            return frozenset((s.group.key, p) for s in self._all() for p in self._lagging_partitions(s))

    def has_followers(self) -> bool:
        """Return True if any group is fed live in some partition, or nothing was read yet."""
        with self._lock:
            return any(len(self._lagging_partitions(s)) < self._partitions for s in self._confirmed())

    def min_backlog(self) -> int:
        """Return the backlog in messages, in its worst partition, of the group that is furthest ahead."""
        with self._lock:
            return min((self._backlog(s) for s in self._confirmed()), default=0)

    def record_fed(self, result: FeedResult) -> None:
        """Record that a task of the query finished a partition."""
        with self._lock:
            self._position[result.partition] = result.until
            self._ranges += 1
            self._refused += result.refused
            self._record(result)

    # catching up

    def cohorts(self) -> list[list[ShardGroup]]:
        """Return the groups that need a catch-up, in lists at the same offsets: the messages they lack are read and
        decoded once for the whole list."""
        with self._lock:
            found: dict[tuple[tuple[int, int], ...], list[ShardGroup]] = {}
            for standing in self._confirmed():
                if self._lagging_partitions(standing):
                    at = tuple(sorted((p, standing.next.get(p, 0)) for p in self._position))
                    found.setdefault(at, []).append(standing.group)
            return list(found.values())

    def max_backlog(self, groups: Iterable[ShardGroup]) -> int:
        """Return the largest backlog of these groups in any partition, in messages."""
        with self._lock:
            return max((self._backlog(s) for s in self._find(groups)), default=0)

    def next_range(
        self, groups: Iterable[ShardGroup], bounds: Mapping[int, Span], most: int
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the next range [start, end) of every partition for these groups: at most `most` messages each, none
        beyond the query's position, the same share of each partition's backlog. So all partitions advance alike in
        time, because samples that are older than the open rows cost a shard more."""
        with self._lock:
            standings = self._find(groups)
            start, lacking = {}, {}
            for partition, position in self._position.items():
                low, high = bounds[partition]
                at = min((s.next.get(partition, 0) for s in standings), default=position)
                start[partition] = min(max(at, low), high)
                lacking[partition] = max(0, min(position, high) - start[partition])
            share = min(1.0, most / max(1, *lacking.values()))
            return start, {p: start[p] + math.ceil(share * lacking[p]) for p in start}

    def lost_ranges(self, group: ShardGroup, bounds: Mapping[int, Span]) -> dict[int, Span]:
        """Return, by partition, the range [next offset, log start) that a group never got and the log no longer has."""
        with self._lock:
            at = {p: n for s in self._find([group]) for p, n in s.next.items()}
            return {p: (at.get(p, 0), start) for p, (start, _) in bounds.items() if at.get(p, 0) < start}

    def shards_above(self, partition: int, offset: int) -> list[ShardInfo]:
        """Return shards with a group whose next offset is above `offset`."""
        with self._lock:
            found = {s.group.shard.id: s.group.shard for s in self._confirmed() if s.next.get(partition, 0) > offset}
            return list(found.values())

    def max_offsets(self) -> dict[int, int]:
        """Return the greatest next offset of any group in each partition."""
        with self._lock:
            found: dict[int, int] = {}
            for standing in self._confirmed():
                for partition, at in standing.next.items():
                    found[partition] = max(at, found.get(partition, 0))
            return found

    def record_catch_up(self, result: FeedResult) -> bool:
        """Record that a task of a catch-up finished a partition; return True if any group advanced."""
        with self._lock:
            before = self._offsets_at(result)
            self._record(result)
            return any(at > before.get(key, at) for key, at in self._offsets_at(result).items())

    def count_catch_up(self, took_s: float) -> None:
        """Count a step of a catch-up."""
        with self._lock:
            self._refills, self._refill_ms = self._refills + 1, took_s * 1000
            self._refills_ms += self._refill_ms

    # under `_lock`

    def _all(self) -> Iterable[_GroupOffsets]:
        return (standing for process in self._shards.values() for standing in process.groups)

    def _confirmed(self) -> Iterable[_GroupOffsets]:
        return (s for process in self._shards.values() if not process.is_doubtful for s in process.groups)

    def _find(self, groups: Iterable[ShardGroup]) -> Sequence[_GroupOffsets]:
        keys = {group.key for group in groups}
        return [standing for standing in self._all() if standing.group.key in keys]

    def _offsets_at(self, result: FeedResult) -> dict[str, int]:
        return {s.group.key: s.next.get(result.partition, 0) for s in self._all() if s.group.key in result.groups}

    def _record(self, result: FeedResult) -> None:
        for process in self._shards.values():
            for standing in process.groups:
                outcome = result.groups.get(standing.group.key)
                if outcome is not None:
                    self._record_one(process, standing, result.partition, outcome)

    @staticmethod
    def _record_one(process: _ShardState, standing: _GroupOffsets, partition: int, outcome: FeedOutcome) -> None:
        if outcome.next is not None:
            standing.next[partition] = outcome.next
        for name in process.counts:
            process.counts[name] += getattr(outcome, name)
        if outcome.changed:
            log.info("buckets: the groups of shard %s have changed", process.shard.id)
            process.is_doubtful = process.changed = True
        elif outcome.error:
            log.warning("buckets: shard %s, partition %d: %s", process.shard.id, partition, outcome.error)
            process.is_doubtful, process.error = True, outcome.error

    def _lagging_partitions(self, standing: _GroupOffsets) -> list[int]:
        return [p for p, at in self._position.items() if standing.next.get(p, 0) < at]

    def _has_fed_all(self) -> bool:
        return all(end <= self._position.get(p, 0) for p, end in self._log_end.items())

    def _backlog(self, standing: _GroupOffsets) -> int:
        return max((self._position[p] - standing.next.get(p, 0) for p in self._lagging_partitions(standing)), default=0)

    # figures

    def record_log_end(self, ends: Mapping[int, int], now_ms: int) -> None:
        """Record the present end of the log."""
        with self._lock:
            self._log_end = dict(ends)
            if len(self._unreached) < MAX_UNREACHED:
                self._unreached.append((now_ms, self._log_end))

    def count_batch(self, took_s: float) -> None:
        """Count a micro-batch of the query."""
        with self._lock:
            self._runs, self._run_ms = self._runs + 1, took_s * 1000
            self._runs_ms += self._run_ms

    def _lag_ms(self, now_ms: int) -> int:
        """Return the milliseconds since the log was first seen to end beyond the query's position; 0 if all was fed. An
        idle log is not a lag."""
        reached = self._position
        while self._unreached and all(end <= reached.get(p, 0) for p, end in self._unreached[0][1].items()):
            self._unreached.popleft()
        return max(0, now_ms - self._unreached[0][0]) if self._unreached else 0

    @staticmethod
    def _min_offsets(process: _ShardState) -> dict[str, int]:
        """Return the smallest next offset of any group of a shard, by partition."""
        partitions = sorted({p for s in process.groups for p in s.next})
        return {str(p): min(s.next.get(p, 0) for s in process.groups) for p in partitions}

    def figures(self, now_ms: int) -> dict[str, Any]:
        """Return the figures that `artimon status` shows."""
        with self._lock:
            lagging = sorted(
                id_ for id_, process in self._shards.items() if any(self._lagging_partitions(s) for s in process.groups)
            )
            self._lagging_since = {id_: self._lagging_since.get(id_, now_ms) for id_ in lagging}
            return {
                "ranges": self._ranges,
                "refused": self._refused,
                "runs": self._runs,
                "runs_ms": round(self._runs_ms),
                "run_ms": round(self._run_ms),
                "refills": self._refills,
                "refill_ms": round(self._refill_ms),
                "refills_ms": round(self._refills_ms),
                "behind": sum(max(0, end - self._position.get(p, 0)) for p, end in self._log_end.items()),
                "position": {str(p): at for p, at in sorted(self._position.items())},
                "lag_ms": self._lag_ms(now_ms),
                "shards": {id_: self._min_offsets(process) for id_, process in self._shards.items()},
                "groups": {id_: len(process.groups) for id_, process in self._shards.items()},
                "counts": {id_: dict(process.counts) for id_, process in self._shards.items()},
                "lagging": lagging,
                "lagging_ms": {id_: max(0, now_ms - since) for id_, since in self._lagging_since.items()},
                "problems": {id_: process.error for id_, process in self._shards.items() if process.error},
            }
