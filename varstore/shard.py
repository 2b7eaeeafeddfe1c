"""One shard: fed ranges of Kafka partitions and announcements, asked for buckets of series by their labels."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from artimon.model.batch import BatchError, SeriesBlock, SeriesInfo
from artimon.model.feed import FeedAnswer, FeedRange
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import DEFAULT_LEVELS, Level
from artimon.model.labels import LabelError, parse_canonical
from artimon.model.ranges import LaneRanges
from artimon.model.routing import VIRTUAL_SHARDS, virtual_shard
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series
from artimon.model.values import ValueType
from varstore.answer import check_request, make_buckets
from varstore.buckets import DEFAULT_CAPACITY, NO_TYPE, BucketStore, Tally
from varstore.index import Entry, Index
from varstore.intake import Intake
from varstore.locks import FairLock
from varstore.positions import Partition, Progress, check_range, sift
from varstore.slots import NO_SLOT, Slots

log = logging.getLogger(__name__)

EVERY_VIRTUAL_SHARD = frozenset(range(VIRTUAL_SHARDS))


class ShardBroken(RuntimeError):
    """Half of a range was applied: what this process holds is not to be trusted any longer, start it again."""


@dataclass(slots=True)
class _Counts:
    total: Tally
    repeated: int = 0
    bad_announcements: int = 0


class Shard:
    """Buckets, index and positions of the virtual shards it owns. `announce` is for one thread, the rest for any.

    Locks, in this order: `_feeding` for a whole range, so that ranges are applied one after another and a position
    moves with its data; `_cells` for one run of it, one announced block or one copy for a reader; `_reading` for the
    positions. The index has its own, taken alone. No I/O under any of them.
    A reader may see a range half applied, never a run; it never waits longer than one run or one other reader.
    """

    def __init__(
        self,
        id: str = "0",
        levels: Sequence[Level] = DEFAULT_LEVELS,
        capacity: int = DEFAULT_CAPACITY,
        owned: frozenset[int] = EVERY_VIRTUAL_SHARD,
    ) -> None:
        self.id, self.level_list, self._owned = id, tuple(levels), owned
        self._store = BucketStore(levels, capacity)
        self._intake = Intake(self._store.slots)
        self._index = Index()
        self._versions: dict[tuple[str, int], int] = {}
        self._progress: dict[Partition, Progress] = {}
        self._lanes = LaneRanges()  # of all partitions: a lane has one in each topic, and outlives a topic
        self._feeding, self._cells, self._reading = threading.Lock(), FairLock(), threading.Lock()
        self._counts = _Counts(Tally())
        self._newest_ms = 0
        self.broken = ""
        """Why this shard takes no more, empty while it is sound."""

    # feed

    def feed(self, range_: FeedRange) -> FeedAnswer:
        """Apply what is new of a range; of a gap apply nothing. The answer's next offset is the truth.

        BatchError for a range that contradicts itself or is not ours (nothing is applied); ShardBroken after a failure
        half-way."""
        check_range(range_)
        self._check_owned(range_)
        with self._feeding:
            if self.broken:
                raise ShardBroken(self.broken)
            key = Partition(range_.topic_id, range_.partition)
            progress = self._progress.get(key) or Progress(self._lanes)
            if not range_.start <= progress.next_offset < range_.until:  # a gap, or nothing new
                return FeedAnswer(progress.next_offset)
            return self._apply(key, progress, range_)

    def _check_owned(self, range_: FeedRange) -> None:
        for source in {entry.source for entry in range_.entries if entry.owned}:
            if virtual_shard(source) not in self._owned:
                raise BatchError(
                    f"virtual shard {virtual_shard(source)} of {source} is not owned by shard {self.id}: "
                    "the feeder must read the membership again"
                )

    def _apply(self, key: Partition, progress: Progress, range_: FeedRange) -> FeedAnswer:
        tally = Tally()
        try:
            sifted = sift(progress, range_)
            runs = self._intake.runs(sifted.pieces, range_.samples)
            while True:
                with self._cells:
                    run = next(runs, None)  # allots slots
                    if run is None:
                        break
                    tally.add(self._store.apply(run))
        except BaseException as error:
            self.broken = f"applying {key} [{range_.start}, {range_.until}) failed half-way: {error!r}"
            raise ShardBroken(self.broken) from error
        with self._reading:
            progress.next_offset = range_.until
            self._progress[key] = progress
            self._counts.total.add(tally)
            self._counts.repeated += sifted.repeated
            if len(range_.samples) and sifted.pieces:
                self._newest_ms = max(self._newest_ms, self._newest_of(range_))
        return FeedAnswer(range_.until, tally.applied, sifted.repeated, tally.late, tally.future)

    @staticmethod
    def _newest_of(range_: FeedRange) -> int:
        """The greatest poll time: a sample's own time may lie far in the future."""
        return max(entry.poll_ms for entry in range_.entries if entry.rows)

    def positions(self) -> dict[Partition, int]:
        """Next offset of every partition that was fed."""
        with self._reading:
            return {key: progress.next_offset for key, progress in self._progress.items()}

    # announcements

    def announce(self, block: SeriesBlock) -> bool:
        """Learn the series of a block; False if its source is not ours or a version as great is known.

        Series of older versions stay known: their buckets are there until they age."""
        if virtual_shard(block.source) not in self._owned:
            return False
        key = (block.source, block.block)
        if self._versions.get(key, -1) >= block.version:
            return False
        parsed = [entry for info in block.series if (entry := self._parse(block.source, info)) is not None]
        prints = np.array([fingerprint(info.text) for info, _, _ in parsed], np.uint64)
        with self._cells:
            slots = self._store.slots.add(prints)
        for (info, name, labels), slot in zip(parsed, slots.tolist(), strict=True):
            if slot == NO_SLOT:
                continue
            if not self._index.add(slot, name, labels, info.type, info.kind, block.version):
                log.error("fingerprint of %s (source %s) has two texts: both are set aside", info.text, block.source)
        self._versions[key] = block.version
        return True

    def _parse(self, source: str, info: SeriesInfo) -> tuple[SeriesInfo, str, dict[str, str]] | None:
        try:
            return info, *parse_canonical(info.text)
        except LabelError as error:
            self._counts.bad_announcements += 1
            log.warning("announcement of source %s: %s", source, error)
            return None

    # questions

    def select(self, request: SelectRequest) -> Buckets:
        """Copies of the buckets of every announced series that fits. SelectError names the limit or the levels."""
        check_request(request, self.level_list)
        slots, entries = self._index.find(request.matchers)
        if len(slots) > request.limit:
            raise SelectError(
                f"{len(slots)} series of shard {self.id} fit, at most {request.limit} are allowed: "
                "add matchers or raise the limit"
            )
        check_request(request, self.level_list, len(slots))
        with self._cells:
            return make_buckets(self._store, request, slots, self._series(slots, entries))

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """The first `limit` series that fit, in canonical order, with or without buckets."""
        slots, entries = self._index.find(matchers)
        order = heapq.nsmallest(limit, range(len(entries)), key=lambda i: entries[i].pairs)
        with self._cells:
            return self._series(slots[np.array(order, np.int64)], [entries[i] for i in order])

    def _series(self, slots: Slots, entries: Sequence[Entry]) -> list[Series]:
        """With `_cells` held. The type is that of the samples, as announced where none came."""
        types = self._store.type_of(slots).tolist()
        prints = self._store.slots.fingerprint.take(slots).tolist()
        return [
            Series(print_, entry.name, entry.labels, entry.type if type_ == NO_TYPE else ValueType(type_), entry.kind)
            for print_, type_, entry in zip(prints, types, entries, strict=True)
        ]

    def names(self) -> list[str]:
        """Every announced name, sorted."""
        return self._index.names()

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """The first `limit` values of a label, sorted; None: the labels."""
        return self._index.values(label)[:limit]

    def levels(self) -> tuple[tuple[int, int], ...]:
        """(step_ms, buckets) of each level, finest first."""
        return tuple((level.step_ms, level.count) for level in self.level_list)

    def status(self) -> dict[str, Any]:
        """Counts for health and `artimon status`, JSON."""
        used = self._store.slots.used
        with self._reading:
            total = self._counts.total
            return {
                "shard": self.id,
                "series": len(self._index),
                "slots": used,
                "capacity": self._store.slots.capacity,
                "unannounced": used - len(self._index) - self._index.clashes,
                "applied": total.applied,
                "repeated": self._counts.repeated,
                "late": total.late,
                "future": total.future,
                "conflicts": total.conflicts,
                "refused": total.refused,
                "clashes": self._index.clashes,
                "bad_announcements": self._counts.bad_announcements,
                "strings": len(self._store.texts),
                "lives_dropped": self._store.lives.dropped,
                "next_offsets": {str(key.partition): p.next_offset for key, p in self._progress.items()},
                "newest_sample_ms": self._newest_ms,
                "broken": self.broken,
            }
