"""Virtual shards that a process holds, in groups: adopting them from a snapshot, dropping, and freezing them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from time import monotonic

import numpy as np

from artimon.model.grid import Level
from artimon.model.vshards import vshards_of
from varstore.cells.locks import FairLock
from varstore.index.label_index import LabelIndex, vshard_flags
from varstore.index.metric_metadata import MetricMetadata
from varstore.index.slot_table import Slots
from varstore.store.bucket_store import BucketStore
from varstore.store.capture import INCARNATIONS_KEY, STATE_KEY, Capture, CaptureKey
from varstore.store.feed_groups import FeedGroup, FeedGroups
from varstore.store.range_admission import vshard_of
from varstore.store.series_frames import KINDS, SeriesImporter, series_frames
from varstore.store.snapshot_frames import SnapshotFrame, encode_frame
from varstore.store.snapshot_transfer import (
    SnapshotExport,
    SnapshotImport,
    group_frame,
    head_frame,
    make_copier,
    sort_by_urgency,
    state_frame,
)

log = logging.getLogger(__name__)

BlockKey = tuple[str, int]
"""(source, block) of an announcement."""
FORGET_BATCH = 1_024
"""Slots cleared under one hold of the lock."""
STATE_KINDS = ("head", "group", "blocks", "slots")
"""Kinds of the parts of a snapshot up to the last one that assigns slots to series."""
FORGET_BLOCK_MS = 9 * 24 * 3_600_000
"""Age limit of announced blocks: distance between the version, the time of the announcement, and the append time of
samples. The topic retains nothing that old, and sources announce daily; a block that comes again is added again."""
_FORGET_INTERVAL_MS = 24 * 3_600_000
JOURNAL_SLOTS = 500_000
"""Limit of the journal of series announced since the last snapshot; beyond it the next snapshot writes all series."""


@dataclass(slots=True)
class ShardLocks:
    """Locks of a shard. Order: moving > feeding > announcing > cells > reading. Only `moving` is held for long, while
    adopting, dropping or beginning an export; feeding and queries never take it."""

    feeding: FairLock = field(default_factory=FairLock)
    cells: FairLock = field(default_factory=FairLock)
    reading: threading.Lock = field(default_factory=threading.Lock)
    announcing: threading.Lock = field(default_factory=threading.Lock)
    moving: threading.RLock = field(default_factory=threading.RLock)


@dataclass(slots=True)
class FrozenState:
    """State of virtual shards at one point in time: small parts as copies, the rest in a capture in progress."""

    groups: list[FeedGroup]
    head_ms: int
    capture: Capture
    slots: Slots
    blocks: dict[BlockKey, int]
    """Version of each announced block."""
    journal: set[int] | None
    """Slots whose series were announced since the journal was last taken; None: unknown."""
    rows: dict[CaptureKey, int]
    """Version of every nonempty row, captured or not."""
    removals: int
    pause_s: float
    """Seconds during which no batch could be applied."""


def unthrottled(_nbytes: int) -> None:
    """Wait for nothing."""


class Ownership:
    """Groups of a shard and all operations that change them except feeding. Thread-safe.

    Invariant: the slots of a virtual shard that is neither held nor arriving are free."""

    def __init__(
        self,
        store: BucketStore,
        index: LabelIndex,
        locks: ShardLocks,
        levels: Sequence[Level],
        vshards: int,
        metadata: MetricMetadata,
        throttle: Callable[[int], None] = unthrottled,
    ) -> None:
        """throttle: called with the bytes of each part of an imported snapshot; waits while memory must be freed."""
        self._metadata, self._throttle = metadata, throttle
        self._index, self._locks, self._levels = index, locks, levels
        self.store = store
        """Store, for filling groups that are not ready yet, under the lock of cells."""
        self.groups = FeedGroups([FeedGroup(vshards)] if vshards else [])
        """Guarded by `reading`; changed with `feeding` held as well."""
        self.adopting = 0
        """Mask of virtual shards being adopted; their announcements are accepted already. Guarded by `reading`."""
        self.blocks: dict[BlockKey, int] = {}
        """Greatest version of each announced block. Guarded by `announcing`."""
        self._blocks_pruned_ms = 0
        self._journal: set[int] | None = None
        self.removals = 0
        """Number of times virtual shards were removed. Announced series are not part of a capture: after a removal an
        image in progress may lack some."""

    # holding

    @property
    def vshards(self) -> int:
        """Mask of all virtual shards held, ready or not."""
        with self._locks.reading:
            return self.groups.vshards

    @property
    def ready(self) -> int:
        """Mask of the virtual shards that are ready."""
        with self._locks.reading:
            return self.groups.ready

    @property
    def accepted_vshards(self) -> int:
        """Mask of the virtual shards whose announcements are accepted."""
        with self._locks.reading:
            return self.groups.vshards | self.adopting

    def journal(self, slots: Slots) -> None:
        """Add slots whose series were announced, or announced again, to the journal. Call with `announcing` held."""
        if self._journal is not None:
            self._journal.update(slots.tolist())
            if len(self._journal) > JOURNAL_SLOTS:
                self._journal = None

    def forget_blocks(self, append_ms: int) -> None:
        """Remove blocks of sources that are gone, once a day of append time; otherwise their number would only grow."""
        if append_ms - self._blocks_pruned_ms < _FORGET_INTERVAL_MS:
            return
        self._blocks_pruned_ms = append_ms
        with self._locks.announcing:
            for key in [key for key, at in self.blocks.items() if abs(append_ms - at) > FORGET_BLOCK_MS]:
                del self.blocks[key]

    # adopting and dropping

    def add(self, group: FeedGroup) -> None:
        """Hold the virtual shards of a group; the store has none or all of their data. ValueError if one is held."""
        with self._locks.moving, self._locks.feeding, self._locks.reading:
            self.groups.add(group)

    def set_ready(self, vshards: int) -> None:
        """Mark groups that hold any of these virtual shards as ready: everything below their positions is here."""
        with self._locks.feeding, self._locks.reading:
            for group in self.groups:
                group.ready = group.ready or bool(group.vshards & vshards)

    def import_snapshot(
        self, vshards: int, frames: Iterable[SnapshotFrame], exact: bool, landed: Callable[[], None] = lambda: None
    ) -> list[FeedGroup]:
        """Take over the virtual shards of a snapshot. Raises SnapshotFormatError, and then holds none of them.
        exact: the store is empty, and every series gets its previous slot. landed: called before anything else can
        change, with locks held."""
        with self._locks.moving:
            coming, parts = SnapshotImport(self.store, self._locks.cells, vshards, exact), iter(frames)
            try:
                self._import_frames(coming, self._begin_adoption(coming, parts, exact))
                with self._locks.feeding, self._locks.cells, self._locks.reading:
                    landed()
                    for group in coming.groups:
                        self.groups.add(group)
                    self.store.advance_head(coming.head_ms)
                    self.adopting = 0
            except BaseException:
                self._remove(vshards)
                raise
            return coming.groups

    def _begin_adoption(
        self, coming: SnapshotImport, parts: Iterator[SnapshotFrame], exact: bool
    ) -> Iterator[SnapshotFrame]:
        """Accept announcements of the arriving virtual shards from now on; return the remaining parts.
        With `exact` slots are imported first: an announcement must not get a slot that a series of the snapshot had."""
        with self._locks.announcing:
            with self._locks.reading:
                twice = vshards_of(coming.wanted & self.groups.vshards)
                if twice:
                    raise ValueError(f"virtual shards {twice} are held already")
                self.adopting = coming.wanted
            while exact and (part := next(parts, None)) is not None:
                if part.kind not in STATE_KINDS:
                    return chain([part], parts)
                if part.kind == "blocks":
                    self._merge_blocks(part, coming)
                coming.import_frame(part)
        return parts

    def _import_frames(self, coming: SnapshotImport, frames: Iterable[SnapshotFrame]) -> None:
        series = SeriesImporter(self._index, self.store.slots, self._metadata)
        for frame in frames:
            if frame.kind in KINDS:
                with self._locks.announcing:
                    self.journal(series.import_frame(frame, coming))
            elif frame.kind == "blocks":
                with self._locks.announcing:
                    self._merge_blocks(frame, coming)
            coming.import_frame(frame)
            self._throttle(frame.nbytes)
        coming.finish()

    def _merge_blocks(self, frame: SnapshotFrame, coming: SnapshotImport) -> None:
        """Merge announced blocks of wanted virtual shards. Call with `announcing` held."""
        columns = frame.columns
        told = zip(columns["source"], columns["block"].tolist(), columns["version"].tolist(), strict=True)
        for source, block, version in told:
            if coming.wanted >> vshard_of(source) & 1:
                self.blocks[source, block] = max(version, self.blocks.get((source, block), -1))

    def drop(self, vshards: int) -> int:
        """See Shard.drop."""
        with self._locks.moving:
            with self._locks.feeding, self._locks.reading:
                dropped = self.groups.remove(vshards)
            self._remove(dropped)
        return dropped

    def _remove(self, vshards: int) -> None:
        """Remove all series and announced blocks of virtual shards that are no longer fed."""
        self.removals += 1
        with self._locks.announcing, self._locks.reading:
            self.adopting &= ~vshards
        with self._locks.announcing:
            gone = [key for key in self.blocks if vshards >> vshard_of(key[0]) & 1]
            for key in gone:
                del self.blocks[key]
        for vshard in vshards_of(vshards):
            with self._locks.cells:
                slots = self.store.slots.of(vshard)
            for first in range(0, len(slots), FORGET_BATCH):
                some = slots[first : first + FORGET_BATCH]
                with self._locks.announcing:
                    self._index.remove(some)
                    with self._locks.cells:
                        self.store.forget(some)

    # freeze

    def freeze(self, vshards: int, known: Mapping[CaptureKey, int], journal: bool) -> FrozenState:
        """Freeze the current state of these virtual shards; rows with the version in `known` are not captured.
        journal: take the journal of announced series and begin a new one. The capture must be closed with `thaw`."""
        with self._locks.moving, self._locks.feeding:
            began = monotonic()
            with self._locks.announcing, self._locks.cells:
                slots = self._slots_of(vshards)
                versions = self.row_versions()
                rows = {key: versions[key] for key in sort_by_urgency(self.store)}
                keys = [
                    STATE_KEY,
                    INCARNATIONS_KEY,
                    *(key for key, version in rows.items() if known.get(key) != version),
                ]
                capture = Capture(self.store.rings, make_copier(self.store), slots, keys)
                self.store.captures.append(capture)
                learnt = self._journal
                if journal:
                    self._journal = set()
                with self._locks.reading:
                    groups = self.groups.copies(vshards)
                return FrozenState(
                    groups,
                    self.store.head_ms,
                    capture,
                    slots,
                    dict(self.blocks),
                    learnt,
                    rows,
                    self.removals,
                    monotonic() - began,
                )

    def row_versions(self) -> dict[CaptureKey, int]:
        """Return the version of every nonempty row. Call with `cells` held."""
        return {
            (at, number): ring.version(number)
            for at, ring in enumerate(self.store.rings)
            for number in ring.bucket_numbers()
        }

    def begin_journal(self) -> None:
        """Begin an empty journal of announced series: all series so far are saved."""
        self._journal = set()

    def _slots_of(self, vshards: int) -> Slots:
        table = self.store.slots
        return np.flatnonzero(vshard_flags(vshards).take(table.vshard[: table.used]) & table.in_use[: table.used])

    def thaw(self, frozen: FrozenState) -> None:
        """Close the capture of `frozen`."""
        with self._locks.cells:
            frozen.capture.close()
            if frozen.capture in self.store.captures:
                self.store.captures.remove(frozen.capture)

    def restore_journal(self, frozen: FrozenState) -> None:
        """Return the journal of `frozen` to the current one, because the snapshot was not saved."""
        with self._locks.announcing:
            if frozen.journal is None or self._journal is None:
                self._journal = None
            else:
                self._journal |= frozen.journal

    def export(self, vshards: int) -> SnapshotExport:
        """Begin a snapshot of these virtual shards as they are now; iterate over it for its parts, then close it.
        Feeding and queries continue meanwhile. Raises ValueError if one is not held or not ready."""
        lacking = vshards & ~self.ready
        if lacking or not vshards:
            raise ValueError(f"virtual shards {vshards_of(lacking)} are not held or not ready: cannot export them")
        frozen = self.freeze(vshards, {}, False)
        return SnapshotExport(frozen.groups, self._parts(frozen, vshards), lambda: self.thaw(frozen))

    def _parts(self, frozen: FrozenState, vshards: int) -> Iterator[bytes]:
        yield from self._groups_of(frozen)
        for _, frame in self.row_frames(frozen):
            yield frame
        yield from self.series_frames(frozen.slots)
        if frozen.removals == self.removals:  # else the importer reads the announcements again
            yield blocks_frame(frozen.blocks, vshards)

    def _groups_of(self, frozen: FrozenState) -> Iterator[bytes]:
        yield head_frame(self._levels, frozen.head_ms, frozen.groups)
        yield from map(group_frame, frozen.groups)

    def row_frames(self, frozen: FrozenState) -> Iterator[tuple[CaptureKey, bytes]]:
        """Yield the captured rows and the state by slot as frames, in turns with feeding."""
        encode = partial(state_frame, self._levels)
        return frozen.capture.parts(self._locks.feeding, self._locks.cells, encode)

    def series_frames(self, slots: Slots) -> Iterator[bytes]:
        """Yield the announced series of these slots as frames, in turns with feeding."""
        return self._in_turns(series_frames(self._index, self.store.slots, slots, self._metadata))

    def state_frames(self, frozen: FrozenState) -> Iterator[bytes]:
        """Yield the small parts of a snapshot, in turns with feeding: head, groups, blocks."""
        return self._in_turns(chain(self._groups_of(frozen), map(blocks_frame, [frozen.blocks], [~0])))

    def _in_turns(self, frames: Iterator[bytes]) -> Iterator[bytes]:
        """Make each frame while nothing is fed. See `Capture.parts`."""
        while True:
            with self._locks.feeding:
                frame = next(frames, None)
            if frame is None:
                return
            yield frame


def blocks_frame(blocks: Mapping[BlockKey, int], vshards: int) -> bytes:
    """Encode the known announced blocks of these virtual shards."""
    mine = sorted(key for key in blocks if vshards >> vshard_of(key[0]) & 1)
    return encode_frame(
        "blocks",
        {},
        {
            "source": [source for source, _ in mine],
            "block": np.array([block for _, block in mine], np.int64),
            "version": np.array([blocks[key] for key in mine], np.int64),
        },
    )
