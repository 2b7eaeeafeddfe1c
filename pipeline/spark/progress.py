"""Where the buckets query and every shard stand. Pure bookkeeping under one lock; nothing here asks a server."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.spark.feeding import FeedResult, ShardOutcome
from pipeline.spark.shards import Shard
from pipeline.spark.state import Span

log = logging.getLogger(__name__)

MAX_UNREACHED = 1_000


@dataclass(slots=True)
class _Standing:
    """One shard. `next` is its own word; absent partitions stand at 0. `doubtful`: it failed, ask before sending
    more."""

    shard: Shard
    next: dict[int, int] = field(default_factory=dict)
    doubtful: bool = False
    error: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("applied", "repeated", "late", "future"), 0))


class Progress:
    """Locks: `_lock` guards everything; no I/O under it.

    Invariant: a shard is fed live in a partition only if its next offset is at or above the query's position there."""

    def __init__(self, partitions: int) -> None:
        self._lock = threading.Lock()
        self._partitions = partitions
        self._position: dict[int, int] = {}
        self._standings: dict[str, _Standing] = {}
        self._log_end: dict[int, int] = {}
        self._unreached: deque[tuple[int, dict[int, int]]] = deque()
        """When the log was seen to end where; only ends that the query has not reached, oldest first."""
        self._lagging_since: dict[str, int] = {}
        """Since when a shard was seen to lack something, each time it was looked at."""
        self._ranges = self._runs = 0
        self._run_ms = self._runs_ms = 0.0

    def say(self, shard: Shard, at: Mapping[int, int]) -> None:
        """What a shard answered when it was asked."""
        with self._lock:
            standing = self._standings.get(shard.id)
            if standing is None or standing.shard != shard:
                standing = self._standings[shard.id] = _Standing(shard)
            standing.next, standing.doubtful, standing.error = dict(at), False, ""

    def known(self) -> bool:
        with self._lock:
            return bool(self._standings)

    def begin(self, bounds: Mapping[int, Span]) -> dict[int, int]:
        """The furthest next offset of any shard, inside the log."""
        with self._lock:
            for partition, (start, end) in bounds.items():
                furthest = max(s.next.get(partition, 0) for s in self._standings.values())
                self._position[partition] = min(max(furthest, start), end)
            return dict(self._position)

    def below(self, id_: str, bounds: Mapping[int, Span]) -> dict[int, Span]:
        """Ranges that a shard never had and the log no longer has: [next offset, log start) per partition."""
        with self._lock:
            at = self._standings[id_].next
            return {p: (at.get(p, 0), start) for p, (start, _) in bounds.items() if at.get(p, 0) < start}

    def only(self, live: Mapping[str, Shard]) -> None:
        """Forget shards that are gone."""
        with self._lock:
            for id_ in [id_ for id_ in self._standings if id_ not in live]:
                log.warning("buckets: shard %s is gone", id_)
                del self._standings[id_]

    def is_doubtful(self, shard: Shard) -> bool:
        """Whether to ask it where it stands."""
        with self._lock:
            standing = self._standings.get(shard.id)
            return standing is None or standing.shard != shard or standing.doubtful

    def doubt(self, id_: str) -> None:
        with self._lock:
            if id_ in self._standings:
                self._standings[id_].doubtful = True

    def shards(self) -> list[Shard]:
        with self._lock:
            return [s.shard for s in self._standings.values() if not s.doubtful]

    def behind(self) -> frozenset[tuple[str, int]]:
        """(shard, partition) not to be fed live."""
        with self._lock:
            return frozenset((s.shard.id, p) for s in self._standings.values() for p in self._lacking(s))

    def laggards(self) -> list[Shard]:
        """Shards that a catch-up must help."""
        with self._lock:
            return [s.shard for s in self._standings.values() if self._lacking(s)]

    def followers(self) -> list[str]:
        """Shards that are fed live in some partition; all of them before anything was read."""
        with self._lock:
            return [
                id_ for id_, s in self._standings.items() if not s.doubtful and len(self._lacking(s)) < self._partitions
            ]

    def missing(self, id_: str) -> int:
        """The most messages that a shard lacks in any partition."""
        with self._lock:
            standing = self._standings[id_]
            return max((self._position[p] - standing.next.get(p, 0) for p in self._lacking(standing)), default=0)

    def chunk(self, id_: str, bounds: Mapping[int, Span], most: int) -> tuple[dict[int, int], dict[int, int]]:
        """What to read for a shard, [start, end) of every partition: at most `most` messages each, none beyond the
        query itself."""
        with self._lock:
            at = self._standings[id_].next
            start, end = {}, {}
            for partition, position in self._position.items():
                low, high = bounds[partition]
                start[partition] = min(max(at.get(partition, 0), low), high)
                end[partition] = max(start[partition], min(position, start[partition] + most, high))
            return start, end

    def moved(self, result: FeedResult) -> None:
        """A task of the query itself is done with a partition."""
        with self._lock:
            self._position[result.partition] = result.until
            self._ranges += 1
            for id_, outcome in result.shards.items():
                self._note(id_, result, outcome)

    def refilled(self, id_: str, result: FeedResult) -> bool:
        """A task of a catch-up is done with a partition; whether the shard moved."""
        with self._lock:
            before = self._standings[id_].next.get(result.partition, 0) if id_ in self._standings else 0
            outcome = result.shards.get(id_, ShardOutcome())
            self._note(id_, result, outcome)
            return outcome.next is not None and outcome.next > before

    def _note(self, id_: str, result: FeedResult, outcome: ShardOutcome) -> None:
        standing = self._standings.get(id_)
        if standing is None:
            return
        if outcome.next is not None:
            standing.next[result.partition] = outcome.next
        for name in standing.counts:
            standing.counts[name] += getattr(outcome, name)
        if outcome.error:
            log.warning("buckets: shard %s, partition %d: %s", id_, result.partition, outcome.error)
            standing.doubtful, standing.error = True, outcome.error

    def _lacking(self, standing: _Standing) -> list[int]:
        return [p for p, at in self._position.items() if standing.next.get(p, 0) < at]

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

    def figures(self, now_ms: int) -> dict[str, Any]:
        """What `artimon status` shows."""
        with self._lock:
            lagging = sorted(id_ for id_, standing in self._standings.items() if self._lacking(standing))
            self._lagging_since = {id_: self._lagging_since.get(id_, now_ms) for id_ in lagging}
            return {
                "ranges": self._ranges,
                "runs": self._runs,
                "runs_ms": round(self._runs_ms),
                "run_ms": round(self._run_ms),
                "behind": sum(max(0, end - self._position.get(p, 0)) for p, end in self._log_end.items()),
                "position": {str(p): at for p, at in sorted(self._position.items())},
                "lag_ms": self._lag_ms(now_ms),
                "shards": {id_: {str(p): at for p, at in sorted(s.next.items())} for id_, s in self._standings.items()},
                "counts": {id_: dict(s.counts) for id_, s in self._standings.items()},
                "lagging": lagging,
                "lagging_ms": {id_: max(0, now_ms - since) for id_, since in self._lagging_since.items()},
                "problems": {id_: s.error for id_, s in self._standings.items() if s.error},
            }
