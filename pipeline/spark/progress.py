"""Where the buckets query and every group of virtual shards stand. Pure bookkeeping under one lock; nothing here asks
a server."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artimon.model.vshards import union
from artimon.rawtable.state import Span
from pipeline.control.shards import Group, Shard, Standings
from pipeline.spark.feeding import FeedResult, Outcome

log = logging.getLogger(__name__)

MAX_UNREACHED = 1_000


@dataclass(slots=True)
class _Standing:
    """One group. `next` is its shard's word; absent partitions stand at 0."""

    group: Group
    next: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Process:
    """One shard. `doubtful`: it failed, or its groups are others by now; nothing is sent before it is asked."""

    shard: Shard
    standings: list[_Standing] = field(default_factory=list)
    doubtful: bool = False
    changed: bool = False
    """It answers, but its groups are others: ask it at once."""
    error: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("applied", "repeated", "late", "future"), 0))

    @property
    def held(self) -> int:
        """Mask of all that its groups hold."""
        return union(standing.group.vshards for standing in self.standings)


class Progress:
    """Locks: `_lock` guards everything; no I/O under it.

    Invariant: a group is fed live in a partition only if its next offset is at or above the query's position there."""

    def __init__(self, partitions: int) -> None:
        self._lock = threading.Lock()
        self._partitions = partitions
        self._position: dict[int, int] = {}
        self._processes: dict[str, _Process] = {}
        self._log_end: dict[int, int] = {}
        self._unreached: deque[tuple[int, dict[int, int]]] = deque()
        """When the log was seen to end where; only ends that the query has not reached, oldest first."""
        self._lagging_since: dict[str, int] = {}
        """Since when a shard was seen to lack something, each time it was looked at."""
        self._ranges = self._runs = self._refused = 0
        self._run_ms = self._runs_ms = 0.0
        self._refills = 0
        self._refill_ms = self._refills_ms = 0.0

    # what the shards say

    def say(self, shard: Shard, groups: Standings) -> None:
        """What a shard answered when it was asked: all its groups."""
        with self._lock:
            process = self._processes.get(shard.id)
            if process is None or process.shard != shard:
                process = self._processes[shard.id] = _Process(shard)
            process.shard = shard
            process.standings = [_Standing(group, dict(at)) for group, at in groups]
            process.doubtful, process.changed, process.error = False, False, ""

    def known(self) -> bool:
        """Whether any group is known."""
        with self._lock:
            return any(True for _ in self._all())

    def only(self, live: Mapping[str, Shard]) -> None:
        """Forget shards that are gone."""
        with self._lock:
            for id_ in [id_ for id_ in self._processes if id_ not in live]:
                log.warning("buckets: shard %s is gone", id_)
                del self._processes[id_]

    def to_ask(self, live: Mapping[str, Shard]) -> list[Shard]:
        """Which of the live shards must say what they hold: new ones, doubtful ones, those whose registration names
        other virtual shards than their groups, or says that they lag where nothing of that is known."""
        with self._lock:
            return [shard for shard in live.values() if self._is_unsure(shard)]

    def _is_unsure(self, shard: Shard) -> bool:
        process = self._processes.get(shard.id)
        if process is None or process.shard != shard or process.doubtful:
            return True
        if shard.lags and self._has_fed_all() and not any(self._lacking(one) for one in process.standings):
            return True  # it went back by itself, because the log was cut
        return shard.held is not None and shard.held != process.held

    def changed(self) -> list[Shard]:
        """Shards that refused a range because their groups are others by now."""
        with self._lock:
            return [process.shard for process in self._processes.values() if process.changed]

    def doubt(self, groups: Iterable[Group]) -> None:
        """Something went wrong with these: ask their shards before anything is sent."""
        with self._lock:
            for group in groups:
                if group.shard.id in self._processes:
                    self._processes[group.shard.id].doubtful = True

    # the query itself

    def begin(self, bounds: Mapping[int, Span]) -> dict[int, int]:
        """The furthest next offset of any group, inside the log."""
        with self._lock:
            for partition, (start, end) in bounds.items():
                furthest = max(s.next.get(partition, 0) for s in self._all())
                self._position[partition] = min(max(furthest, start), end)
            return dict(self._position)

    def pass_deleted(self, bounds: Mapping[int, Span]) -> None:
        """Move the query to the start of the log where it stands below."""
        with self._lock:
            for partition, position in self._position.items():
                self._position[partition] = max(position, bounds[partition][0])

    def stand_at(self, ends: Mapping[int, int]) -> None:
        """The query itself has nothing to read: every group is to come to these offsets."""
        with self._lock:
            self._position = dict(ends)

    def is_sure(self, shard: Shard) -> bool:
        """True if the shard said what it holds and nothing failed since."""
        with self._lock:
            process = self._processes.get(shard.id)
            return process is not None and process.shard == shard and not process.doubtful

    def groups(self) -> list[Group]:
        """Those that may be sent to."""
        with self._lock:
            return [standing.group for standing in self._sure()]

    def behind(self) -> frozenset[tuple[str, int]]:
        """(key of a group, partition) not to be fed live."""
        with self._lock:
            return frozenset((s.group.key, p) for s in self._all() for p in self._lacking(s))

    def followers(self) -> bool:
        """Whether any group is fed live in some partition; true before anything was read."""
        with self._lock:
            return any(len(self._lacking(s)) < self._partitions for s in self._sure())

    def least_missing(self) -> int:
        """The most messages that the group which is furthest lacks in any partition."""
        with self._lock:
            return min((self._missing(s) for s in self._sure()), default=0)

    def moved(self, result: FeedResult) -> None:
        """A task of the query itself is done with a partition."""
        with self._lock:
            self._position[result.partition] = result.until
            self._ranges += 1
            self._refused += result.refused
            self._note(result)

    # catching up

    def cohorts(self) -> list[list[Group]]:
        """Groups that a catch-up must help, those together that stand at the same offsets: what they lack is read and
        decoded once for all of them."""
        with self._lock:
            found: dict[tuple[tuple[int, int], ...], list[Group]] = {}
            for standing in self._sure():
                if self._lacking(standing):
                    at = tuple(sorted((p, standing.next.get(p, 0)) for p in self._position))
                    found.setdefault(at, []).append(standing.group)
            return list(found.values())

    def missing(self, groups: Iterable[Group]) -> int:
        """The most messages that one of these groups lacks in any partition."""
        with self._lock:
            return max((self._missing(s) for s in self._of(groups)), default=0)

    def chunk(
        self, groups: Iterable[Group], bounds: Mapping[int, Span], most: int
    ) -> tuple[dict[int, int], dict[int, int]]:
        """What to read for these groups, [start, end) of every partition: at most `most` messages each, none beyond
        the query itself, of each partition the same share of what is lacking, so that all advance alike in time: a
        sample that is older than its row's neighbours costs a shard more."""
        with self._lock:
            standings = self._of(groups)
            start, lacking = {}, {}
            for partition, position in self._position.items():
                low, high = bounds[partition]
                at = min((s.next.get(partition, 0) for s in standings), default=position)
                start[partition] = min(max(at, low), high)
                lacking[partition] = max(0, min(position, high) - start[partition])
            share = min(1.0, most / max(1, *lacking.values()))
            return start, {p: start[p] + math.ceil(share * lacking[p]) for p in start}

    def below(self, group: Group, bounds: Mapping[int, Span]) -> dict[int, Span]:
        """Ranges that a group never had and the log no longer has: [next offset, log start) per partition."""
        with self._lock:
            at = {p: n for s in self._of([group]) for p, n in s.next.items()}
            return {p: (at.get(p, 0), start) for p, (start, _) in bounds.items() if at.get(p, 0) < start}

    def beyond(self, partition: int, offset: int) -> list[Shard]:
        """Shards with a group that stands above `offset`."""
        with self._lock:
            found = {s.group.shard.id: s.group.shard for s in self._sure() if s.next.get(partition, 0) > offset}
            return list(found.values())

    def furthest(self) -> dict[int, int]:
        """The greatest next offset of any group in each partition."""
        with self._lock:
            found: dict[int, int] = {}
            for standing in self._sure():
                for partition, at in standing.next.items():
                    found[partition] = max(at, found.get(partition, 0))
            return found

    def refilled(self, result: FeedResult) -> bool:
        """A task of a catch-up is done with a partition; whether any group moved."""
        with self._lock:
            before = self._at(result)
            self._note(result)
            return any(at > before.get(key, at) for key, at in self._at(result).items())

    def refill_ran(self, took_s: float) -> None:
        """A step of a catch-up is done."""
        with self._lock:
            self._refills, self._refill_ms = self._refills + 1, took_s * 1000
            self._refills_ms += self._refill_ms

    # under `_lock`

    def _all(self) -> Iterable[_Standing]:
        return (standing for process in self._processes.values() for standing in process.standings)

    def _sure(self) -> Iterable[_Standing]:
        return (s for process in self._processes.values() if not process.doubtful for s in process.standings)

    def _of(self, groups: Iterable[Group]) -> Sequence[_Standing]:
        keys = {group.key for group in groups}
        return [standing for standing in self._all() if standing.group.key in keys]

    def _at(self, result: FeedResult) -> dict[str, int]:
        return {s.group.key: s.next.get(result.partition, 0) for s in self._all() if s.group.key in result.groups}

    def _note(self, result: FeedResult) -> None:
        for process in self._processes.values():
            for standing in process.standings:
                outcome = result.groups.get(standing.group.key)
                if outcome is not None:
                    self._note_one(process, standing, result.partition, outcome)

    @staticmethod
    def _note_one(process: _Process, standing: _Standing, partition: int, outcome: Outcome) -> None:
        if outcome.next is not None:
            standing.next[partition] = outcome.next
        for name in process.counts:
            process.counts[name] += getattr(outcome, name)
        if outcome.changed:
            log.info("buckets: shard %s has other groups by now", process.shard.id)
            process.doubtful = process.changed = True
        elif outcome.error:
            log.warning("buckets: shard %s, partition %d: %s", process.shard.id, partition, outcome.error)
            process.doubtful, process.error = True, outcome.error

    def _lacking(self, standing: _Standing) -> list[int]:
        return [p for p, at in self._position.items() if standing.next.get(p, 0) < at]

    def _has_fed_all(self) -> bool:
        return all(end <= self._position.get(p, 0) for p, end in self._log_end.items())

    def _missing(self, standing: _Standing) -> int:
        return max((self._position[p] - standing.next.get(p, 0) for p in self._lacking(standing)), default=0)

    # figures

    def log_end(self, ends: Mapping[int, int], now_ms: int) -> None:
        """Where the log ends now."""
        with self._lock:
            self._log_end = dict(ends)
            if len(self._unreached) < MAX_UNREACHED:
                self._unreached.append((now_ms, self._log_end))

    def ran(self, took_s: float) -> None:
        """A micro-batch of the query is done."""
        with self._lock:
            self._runs, self._run_ms = self._runs + 1, took_s * 1000
            self._runs_ms += self._run_ms

    def _lag_ms(self, now_ms: int) -> int:
        """How long ago the log first ended beyond what the query has fed; 0 if it has fed all that was seen. A log
        that was quiet for long is no lag."""
        reached = self._position
        while self._unreached and all(end <= reached.get(p, 0) for p, end in self._unreached[0][1].items()):
            self._unreached.popleft()
        return max(0, now_ms - self._unreached[0][0]) if self._unreached else 0

    @staticmethod
    def _least(process: _Process) -> dict[str, int]:
        """Where the group of a shard that is furthest behind stands."""
        partitions = sorted({p for s in process.standings for p in s.next})
        return {str(p): min(s.next.get(p, 0) for s in process.standings) for p in partitions}

    def figures(self, now_ms: int) -> dict[str, Any]:
        """What `artimon status` shows."""
        with self._lock:
            lagging = sorted(
                id_ for id_, process in self._processes.items() if any(self._lacking(s) for s in process.standings)
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
                "shards": {id_: self._least(process) for id_, process in self._processes.items()},
                "groups": {id_: len(process.standings) for id_, process in self._processes.items()},
                "counts": {id_: dict(process.counts) for id_, process in self._processes.items()},
                "lagging": lagging,
                "lagging_ms": {id_: max(0, now_ms - since) for id_, since in self._lagging_since.items()},
                "problems": {id_: process.error for id_, process in self._processes.items() if process.error},
            }
