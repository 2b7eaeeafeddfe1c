"""One shard: takes ranges of Kafka partitions and announcements, and answers queries for series by their labels."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import numpy as np

from artimon.compute.aggregate import Aggregate, AggregateRequest
from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.cardinality import Cardinality
from artimon.model.feed_codec import FeedAnswer, FeedRange
from artimon.model.grid import DEFAULT_LEVELS, Level
from artimon.model.hash_routing import VIRTUAL_SHARDS
from artimon.model.labels import LabelError, parse_canonical
from artimon.model.select import NAME, NOT_OWNED, Buckets, Matcher, SelectError, SelectRequest, Series
from artimon.model.values import ValueType
from artimon.model.vshards import mask_of, vshards_of
from varstore.cells.cell_file import CellFile
from varstore.index.index_statistics import matching_values, read_cardinality
from varstore.index.label_index import LabelIndex
from varstore.index.metric_metadata import Metadata, MetricMetadata
from varstore.index.shard_limits import DEFAULT_CAPACITY, DEFAULT_LIMITS, ShardLimits
from varstore.query.bucket_reader import BucketReader
from varstore.query.pushdown import Pushdown
from varstore.query.query_deadline import IsDisconnected, never_disconnected
from varstore.store.bucket_store import NO_TYPE, BucketStore, OutcomeCounts
from varstore.store.cell_spiller import CellSpiller
from varstore.store.feed_groups import FeedGroup, LostRange, Partition
from varstore.store.ownership import Ownership, ShardLocks, unthrottled
from varstore.store.poll_times import PollTimes
from varstore.store.range_admission import AdmittedRange, admit, advance, check_range, drop_repeats, vshard_of
from varstore.store.run_builder import RunBuilder
from varstore.store.series_catalogue import SeriesCatalogue
from varstore.store.snapshot_frames import decode_frame

log = logging.getLogger(__name__)

Request = TypeVar("Request", SelectRequest, AggregateRequest)
EVERY_VIRTUAL_SHARD = frozenset(range(VIRTUAL_SHARDS))


class ShardBroken(RuntimeError):
    """A range was applied only in part: the data of this process is inconsistent, restart it."""


class Shard:
    """Buckets, index and positions of the virtual shards it holds. Thread-safe; `announce` is for one thread only.

    Locks, in this order: `moving` of `Ownership` for adopting and dropping; `_feeding` for a whole range, so that
    ranges are applied one after another and a position moves with its data, and for a part of a snapshot; `_announcing`
    for one announced block; `_cells` for one run, the slots of one block, or one copy for a reader; `_reading` for the
    groups and counts. The index has its own, taken last. No I/O under any of them except `moving`, unless a late sample
    or a removal needs cells on disk that left the page cache.
    A reader may see a range half applied, never a run; it never waits longer than one run or one other reader.
    """

    def __init__(
        self,
        id: str = "0",
        levels: Sequence[Level] = DEFAULT_LEVELS,
        capacity: int = DEFAULT_CAPACITY,
        owned: frozenset[int] = EVERY_VIRTUAL_SHARD,
        limits: ShardLimits = DEFAULT_LIMITS,
        cell_file: CellFile | None = None,
    ) -> None:
        """cell_file: place of the packed cells of the coarser levels, which `spiller` moves there; None: memory."""
        self.id, self.level_list = id, tuple(levels)
        self._store, limits = BucketStore(levels, capacity), limits.of_capacity(capacity)
        self._run_builder = RunBuilder(self._store.slots, self._store.longest_ring.step_ms)
        self._index = LabelIndex(self._store.slots, limits)
        self._metadata = MetricMetadata()
        locks = ShardLocks()
        self._feeding, self._cells, self._reading = locks.feeding, locks.cells, locks.reading
        self._announcing = locks.announcing
        self.spiller = CellSpiller(self._store, self._cells, cell_file) if cell_file is not None else None
        throttle = self.spiller.throttle if self.spiller is not None else unthrottled
        self.ownership = Ownership(
            self._store, self._index, locks, self.level_list, mask_of(owned), self._metadata, throttle
        )
        self._groups = self.ownership.groups
        self.cells = locks.cells
        """Lock of the store, for copying parts of it."""
        self._catalogue = SeriesCatalogue(self._store, self._index, self._cells, limits)
        self._reader = BucketReader(self._store, self._index, self._cells)
        self._pushdown = Pushdown(self._store, self._index, self._cells, self.level_list, self._reader)
        self._total = OutcomeCounts()
        self._repeated = self._bad_announcements = self._newest_ms = 0
        self._polls = PollTimes()
        self.broken = ""
        """Reason why this shard accepts no more ranges, empty while it is consistent."""

    # feed

    def feed(self, range_: FeedRange) -> FeedAnswer:
        """Apply the new part of a range; nothing if it begins after a gap. The answer's next offset is authoritative.

        Raises BatchError for a range that is inconsistent or for other virtual shards (nothing is applied), and
        ShardBroken after a partial failure."""
        check_range(range_)
        with self._feeding:
            if self.broken:
                raise ShardBroken(self.broken)
            admitted = admit(self._groups, range_, self.id)
            return admitted if isinstance(admitted, FeedAnswer) else self._apply(admitted, range_)

    def _apply(self, admitted: AdmittedRange, range_: FeedRange) -> FeedAnswer:
        tally = OutcomeCounts()
        try:
            pieces, repeated = drop_repeats(admitted.group, range_)
            runs = self._run_builder.runs(pieces, range_.samples)
            while True:
                with self._cells:
                    run = next(runs, None)  # allocates slots
                    if run is None:
                        break
                    tally.add(self._store.apply(run))
        except BaseException as error:
            self.broken = f"applying {admitted.key} [{range_.start}, {range_.until}) failed half-way: {error!r}"
            raise ShardBroken(self.broken) from error
        with self._reading:
            advance(self._groups, admitted, range_)
            if range_.entries:
                admitted.group.forget_lost(self._store.head_ms, self._store.head_ms - self._store.silent_ms())
            self._total.add(tally)
            self._repeated += repeated
            if len(range_.samples) and pieces:  # the poll time, as the time of a sample may be far in the future
                self._newest_ms = max(self._newest_ms, *(entry.poll_ms for entry in range_.entries if entry.rows))
                self._polls.add(piece.entry for piece in pieces)
        self._catalogue.maintain(self.ownership.vshards)
        self.ownership.forget_blocks(self._store.head_ms)
        return FeedAnswer(range_.until, tally.applied, repeated, tally.late, tally.future)

    # groups

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups for JSON: `vshards` (hex mask), `positions` ([topic id, partition, next offset] each),
        `ready` (True if everything below the positions is here) and, if Kafka deleted records before they were read,
        `lost` ([topic id, partition, start, until, append time of the next batch])."""
        with self._reading:
            return [group.summary() for group in self._groups]

    @property
    def vshards(self) -> int:
        """Mask of all virtual shards held, ready or not."""
        return self.ownership.vshards

    @property
    def ready(self) -> int:
        """Mask of the virtual shards that are ready."""
        return self.ownership.ready

    def lost(self) -> list[tuple[int, dict[Partition, LostRange]]]:
        """Return the virtual shards (mask) and lost ranges of each group that lacks ranges that Kafka deleted."""
        with self._reading:
            return [(group.vshards, dict(group.lost)) for group in self._groups.lost]

    def clear_lost(self, lost: Mapping[Partition, LostRange]) -> None:
        """See `FeedGroups.clear_lost`."""
        with self._feeding, self._reading:
            self._groups.clear_lost(lost)

    def adopt(
        self,
        vshards: int,
        image: Iterable[bytes] | None = None,
        ready: bool = True,
        epochs: Mapping[Partition, int] | None = None,
    ) -> None:
        """Hold more virtual shards (mask): from a snapshot (parts of a `SnapshotExport`), or else empty at offset 0 of
        every partition, written under `epochs` or later ones. With `ready` False their answers are partial until
        `Ownership.set_ready`.

        A snapshot may have more virtual shards than these; its groups appear once it is complete. Announcements of the
        series topic must be read again. Raises ValueError if one is held already, and SnapshotFormatError if the
        snapshot is damaged, truncated, lacks one, or does not fit in: nothing is held then."""
        if image is None:
            self.ownership.add(FeedGroup(vshards, ready=ready, epochs=dict(epochs or {})))
        else:
            self.ownership.import_snapshot(vshards, map(decode_frame, image), False)

    def drop(self, vshards: int) -> int:
        """Drop these virtual shards and their series; return the mask of those that were held."""
        return self.ownership.drop(vshards)

    def rewind(self, key: Partition, offset: int) -> None:
        """Go back to `offset` of a partition whose log was truncated: records from `offset` on are new."""
        with self._feeding, self._reading:
            self._groups.rewind(key, offset)

    def other_epochs(self, topic_id: str, now: Mapping[int, int]) -> set[tuple[int, int]]:
        """See `FeedGroups.other_epochs`."""
        with self._reading:
            return self._groups.other_epochs(topic_id, now)

    def follow_epochs(self, topic_id: str, now: Mapping[int, int], ends: Mapping[tuple[int, int], int]) -> None:
        """See `FeedGroups.follow_epochs`."""
        with self._feeding, self._reading:
            back = self._groups.follow_epochs(topic_id, now, ends)
        for key, was, offset in back:
            log.warning("shard %s: log of %s was truncated: went back from offset %d to %d", self.id, key, was, offset)

    def is_wanted(self, source: str, block: int, version: int) -> bool:
        """True if an announced block is new and of a virtual shard that is held or being adopted."""
        if not self.ownership.accepted_vshards >> vshard_of(source) & 1:
            return False
        return self.ownership.blocks.get((source, block), -1) < version

    @property
    def applied(self) -> int:
        """Number of samples applied since the start."""
        with self._reading:
            return self._total.applied

    def set_memory_limit(self, limit: int) -> None:
        """Set the memory limit in bytes beyond which new series are refused."""
        self._catalogue.memory_bytes = limit

    # announcements

    def announce(self, block: SeriesBlock, append_ms: int = 0) -> bool:
        """Add the series of a block, appended at `append_ms` (0: unknown).

        False if its virtual shard is not held, or an equal or newer version is known. Series of older versions stay
        until they are silent: see `SeriesCatalogue`."""
        vshard = vshard_of(block.source)
        if not self.ownership.accepted_vshards >> vshard & 1:
            return False
        key = (block.source, block.block)
        if self.ownership.blocks.get(key, -1) >= block.version:
            return False
        parsed = [entry for info in block.series if (entry := self._parse(block.source, info)) is not None]
        with self._announcing:
            if not self.ownership.accepted_vshards >> vshard & 1:  # dropped meanwhile
                return False
            arriving = not self.ownership.vshards >> vshard & 1
            slots = self._catalogue.announce(block.source, vshard, parsed, block.version, append_ms, arriving)
            self.ownership.journal(slots)
            self.ownership.blocks[key] = block.version
        for info, name, _ in parsed:
            self._metadata.add(name, info.help, info.unit)
        return True

    def _parse(self, source: str, info: SeriesInfo) -> tuple[SeriesInfo, str, dict[str, str]] | None:
        try:
            return info, *parse_canonical(info.text)
        except LabelError as error:
            self._bad_announcements += 1
            log.warning("announcement of source %s: %s", source, error)
            return None

    # queries

    def select(self, request: SelectRequest, gone: IsDisconnected = never_disconnected) -> Buckets:
        """Return copies of the buckets of every announced series that fits.
        Raises SelectError, which names the limit or the levels, and CallerDisconnected once `gone` returns True."""
        self.check_held(request.vshards)
        buckets = self._reader.select(self._without_full_mask(request), self.level_list, f"shard {self.id}", gone)
        self.check_held(request.vshards)  # once more: they may have been dropped meanwhile
        return buckets

    def _without_full_mask(self, request: Request) -> Request:
        """Return the request without its mask if that includes everything held."""
        vshards = request.vshards
        everything = vshards is not None and vshards & self.vshards == self.vshards
        return replace(request, vshards=None) if everything else request

    def aggregate(self, request: AggregateRequest, gone: IsDisconnected = never_disconnected) -> Aggregate:
        """Return the partial result of a pushdown. Raises SelectError and NotPushed; see `Pushdown.aggregate`."""
        self.check_held(request.vshards)
        found = self._pushdown.aggregate(self._without_full_mask(request), gone)
        self.check_held(request.vshards)
        return found

    def check_held(self, vshards: int | None) -> None:
        """Raise SelectError, beginning with NOT_OWNED, unless all of these virtual shards are held."""
        lacking = (vshards or 0) & ~self.vshards
        if lacking:
            raise SelectError(f"{NOT_OWNED}: shard {self.id} does not hold virtual shards {vshards_of(lacking)[:8]}")

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """Return the first `limit` series that fit, in canonical order, with or without buckets."""
        slots, entries = self._index.find_first(matchers, limit)
        prints = np.array([entry.fingerprint for entry in entries], np.uint64)
        with self._cells:
            same = self._store.slots.holds(slots, prints)
            types = np.where(same, self._store.types.types_of(slots), NO_TYPE).tolist()
        # the type of the samples, or the announced one if there are none
        return [
            Series(e.fingerprint, e.name, e.labels, e.type if type_ == NO_TYPE else ValueType(type_), e.kind)
            for type_, e in zip(types, entries, strict=True)
        ]

    def names(self) -> list[str]:
        """Return all announced names, sorted."""
        return self._index.values(NAME)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """Return the first `limit` values of a label, sorted; `label` None: the names of the labels."""
        return self._index.values(label)[:limit]

    def matching_values(self, label: str | None, matchers: tuple[Matcher, ...], limit: int) -> list[str]:
        """Return the first `limit` values of a label among matching series, sorted; `label` None: the names of their
        labels."""
        return matching_values(self._index, label, matchers, limit)

    def metadata(self, names: Sequence[str] | None) -> dict[str, Metadata]:
        """Return help and unit of these names (None: all) as the announcements told them, also those before a snapshot.
        Names without both are left out."""
        return self._metadata.read(names)

    def cardinality(self, top: int, vshards: int | None) -> Cardinality:
        """Count the series of virtual shards (mask; None: all). Raises SelectError if one is not held."""
        self.check_held(vshards)
        return read_cardinality(self._index, top, vshards)

    def levels(self) -> tuple[tuple[int, int], ...]:
        """Return (step_ms, buckets) of each level, finest first."""
        return tuple((level.step_ms, level.count) for level in self.level_list)

    def status(self) -> dict[str, Any]:
        """Return counts for health and `artimon status`, for JSON."""
        table = self._store.slots
        with self._reading:
            return {
                "shard": self.id,
                "series": len(self._index),
                "slots": table.live,
                "capacity": table.capacity,
                "unannounced": table.live - len(self._index) - self._index.clashes,
                **asdict(self._total),
                "repeated": self._repeated,
                "refused_series": self._catalogue.refusals.total,
                "refused_names": self._catalogue.refusals.worst(),
                "memory_full": table.closed,
                "memory_limit": self._catalogue.memory_bytes,
                "expired": self._catalogue.expired,
                "clashes": self._index.clashes,
                "bad_announcements": self._bad_announcements,
                "strings": len(self._store.strings),
                "lives_dropped": self._store.incarnations.dropped,
                "groups": len(self._groups),
                "next_offsets": self._next_offsets(),
                "newest_sample_ms": self._newest_ms,
                "broken": self.broken,
            }

    def polls(self) -> list[list[Any]]:
        """See `PollTimes.summary`."""
        with self._reading:
            return self._polls.summary(self._store.head_ms)

    def _next_offsets(self) -> dict[str, int]:
        """Return the least next offset of all groups by partition; the last topic id wins. With `_reading` held."""
        return {
            str(key.partition): min(group.next_offset(key) for group in self._groups)
            for group in self._groups
            for key in group.positions
        }
