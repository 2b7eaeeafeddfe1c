"""Catalogue of the series of a shard: announcements add them within limits, silence removes them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from artimon.compute.bucketizer import distinct
from artimon.model.batch import SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.vshards import ALL_VSHARDS
from artimon.runtime.machine_memory import memory_limit
from varstore.cells.locks import FairLock
from varstore.index.label_index import AnnounceOutcome, LabelIndex, vshard_flags
from varstore.index.shard_limits import RefusedCounts, ShardLimits
from varstore.index.slot_table import NO_SLOT, Fingerprints, Slots
from varstore.store.bucket_store import BucketStore

log = logging.getLogger(__name__)

SLICE_SLOTS = 8_192
"""Slots checked for silence under one hold of the lock."""
EXPIRY_BATCH = 512
SLICES_PER_RANGE = 4
MEMORY_CHECK_RANGES = 8
"""Number of ranges between checks of the memory."""
_NONE = np.zeros(0, np.int64)

ParsedSeries = tuple[SeriesInfo, str, dict[str, str]]
"""Announced series, its name and its labels."""


class SeriesCatalogue:
    """Joins slot table, index and store. One call of `announce` at a time, and one of `maintain` (by the feeding
    thread); both take `cells`, the store's lock, briefly, and the index's under it.

    Invariant: a slot that the index names is in use. So the index removes a slot before it is freed, under one hold of
    `cells`, and slots of an announcement in progress are `_pinned`: they are not freed."""

    def __init__(self, store: BucketStore, index: LabelIndex, cells: FairLock, limits: ShardLimits) -> None:
        self._store, self._index, self._cells, self._limits = store, index, cells, limits
        self.memory_bytes = limits.memory_bytes or memory_limit()
        """Memory limit; new series are refused while more is used."""
        self.refusals = RefusedCounts()
        self._pinned = _NONE
        self._next = 0
        """First slot of the next slice; a pass ends at the end of the table."""
        self._pass_running = False
        self._passed_ms = 0
        """Limit in ms of the last pass over all slots: it removed series whose last sample is older."""
        self._maintained = 0
        self.expired = 0
        """Number of series removed because they were silent."""

    # announcements

    def announce(
        self,
        source: str,
        vshard: int,
        parsed: Sequence[ParsedSeries],
        version: int,
        seen_ms: int,
        arriving: bool = False,
    ) -> Slots:
        """Add series of a block announced at `seen_ms` (append time, 0: unknown); return the slots of known series.
        A series beyond a limit is refused: it loses its slot and its samples, and gets no slot until an announcement
        finds room again. While its virtual shard is `arriving` from another process it keeps the slot."""
        prints = np.array([fingerprint(info.text) for info, _, _ in parsed], np.uint64)
        with self._cells:
            self._lift_refusals(prints, vshard, parsed)
            slots = self._store.slots.add(prints, vshard)
            self._pinned = slots[slots != NO_SLOT]
        refused, known = list[int](), list[int]()
        try:
            for row, ((info, name, labels), slot) in enumerate(zip(parsed, slots.tolist(), strict=True)):
                outcome = AnnounceOutcome.REFUSED
                if slot != NO_SLOT:
                    outcome = self._index.add(slot, name, labels, info.type, info.kind, version, seen_ms)
                if outcome is AnnounceOutcome.CLASH:
                    log.error("%s (source %s): its fingerprint has two texts, both are hidden", info.text, source)
                elif outcome is AnnounceOutcome.KNOWN:
                    known.append(slot)
                elif not arriving:
                    refused.append(row)
        finally:
            with self._cells:
                self._refuse(refused, prints, slots, vshard, parsed)
                self._pinned = _NONE
        return np.array(known, np.int64)

    def _lift_refusals(self, prints: Fingerprints, vshard: int, parsed: Sequence[ParsedSeries]) -> None:
        table = self._store.slots
        if not table.refused_series or table.closed:
            return
        for print_, (_, name, _) in zip(prints.tolist(), parsed, strict=True):
            if self._index.has_room(name) and table.allow(print_, vshard):
                self.refusals.uncount(name)

    def _refuse(
        self, rows: Sequence[int], prints: Fingerprints, slots: Slots, vshard: int, parsed: Sequence[ParsedSeries]
    ) -> None:
        """Bar and remove refused series. Call with `cells` held."""
        table = self._store.slots
        fresh = [row for row in rows if not table.is_refused(int(prints[row]), vshard)]
        for row in fresh:
            self.refusals.note(parsed[row][1])
        table.refuse([int(prints[row]) for row in fresh], vshard)
        gone = distinct(slots[fresh])
        self.forget(gone[gone != NO_SLOT])

    # forgetting

    def forget(self, slots: Slots) -> None:
        """Remove distinct slots in use from index and store; best some 500 at once. Call with `cells` held."""
        self._index.remove(slots)
        self._store.forget(slots)

    def maintain(self, vshards: int = ALL_VSHARDS) -> bool:
        """Do a little upkeep after a range was applied: check the memory, remove silent series. True if more is due.

        vshards: mask of the virtual shards to check, those held and not still arriving. Takes `cells` several times."""
        if self._maintained % MEMORY_CHECK_RANGES == 0:
            with self._cells:
                self._check_memory()
        self._maintained += 1
        for _ in range(SLICES_PER_RANGE):
            with self._cells:
                if not self._expire_slice(vshards):
                    return False
        return True

    def _check_memory(self) -> None:
        table = self._store.slots
        full = self._store.bytes_used() + self._index.bytes() > self.memory_bytes
        if full == table.closed:
            return
        table.closed = full
        table.invalidate()
        state = "memory limit of %d bytes reached: new series are refused" if full else "below %d bytes again"
        log.warning(state, self.memory_bytes)

    def _expire_slice(self, vshards: int) -> bool:
        """Check one slice; False if the pass is over or none is due. A pass is due per bucket of the longest level."""
        store, floor = self._store, self._store.silent_ms()
        if not self._pass_running:
            if floor <= self._passed_ms:
                return False
            self._pass_running, self._passed_ms = True, floor
        first, end = self._next, min(self._next + SLICE_SLOTS, store.slots.used)
        slots = np.flatnonzero(store.slots.in_use[first:end]) + first
        slots = slots[store.silent(slots)]
        if len(slots):
            slots = slots[vshard_flags(vshards).take(store.slots.vshard.take(slots))]
        if len(self._pinned):
            slots = slots[~np.isin(slots, self._pinned)]
        if len(slots) > EXPIRY_BATCH:
            slots = slots[:EXPIRY_BATCH]
            end = int(slots[-1]) + 1
        if store.clear_one_row(slots):
            return True  # check the same slots again under another hold of the lock
        stale = self._index.not_announced_since(slots, floor, store.head_ms)
        self.forget(slots[stale])
        store.reset(slots[~stale])
        store.incarnations.prune(first, end)
        self.expired += int(np.count_nonzero(stale))
        self._pass_running = end < store.slots.used
        self._next = end if self._pass_running else 0
        return self._pass_running
