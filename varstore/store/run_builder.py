"""Conversion of a feed range into runs: look up the slots of new rows and group batches into passes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.kernels import kernels
from artimon.model.batch import Samples
from artimon.model.feed_codec import FeedEntry
from artimon.model.grid import bucket_end
from artimon.model.hash_routing import virtual_shard
from varstore.cells.lazy_memory import lazy_zeros
from varstore.index.slot_table import NO_SLOT, Fingerprints, Slots, SlotTable
from varstore.store.bucket_store import SampleRun

RUN_ROWS = 32_768
"""Limit of rows of several batches in a run; about what fits into the L2 cache with its temporaries."""
CACHED_ROWS = 8_000_000
"""Limit of cached slots: 64 MB at 8 bytes each."""
_LAST_MARK = 255


class OwnedBatch(NamedTuple):
    """Owned batch that was not applied before: rows [start, end) of its range."""

    entry: FeedEntry
    start: int
    end: int


@dataclass(slots=True)
class CachedBlock:
    """Slots of one list of fingerprints of one source."""

    vshard: int
    slots: Slots
    distinct: bool
    complete: bool
    """True if no series of it was refused."""
    epoch: int
    """Epoch of the table when the slots were looked up or last verified."""

    @property
    def known_slots(self) -> Slots:
        """Slots without NO_SLOT."""
        return self.slots if self.complete else self.slots[self.slots != NO_SLOT]


class RunBuilder:
    """Looks up slots and groups batches. Not locked: the owner's lock guards it and the table."""

    def __init__(self, table: SlotTable, step_ms: int = 3_600_000, cached_rows: int = CACHED_ROWS) -> None:
        """step_ms: step of the longest level; silence depends only on its bucket of the append time."""
        self._table, self._step_ms = table, step_ms
        self._cached_rows = cached_rows
        self._cache: OrderedDict[tuple[str, int], CachedBlock] = OrderedDict()
        self._held_rows = 0
        self._marks: npt.NDArray[np.uint8] = lazy_zeros(table.size, np.uint8)  # `_mark`: in the current run
        self._mark = 0

    def runs(self, pieces: Sequence[OwnedBatch], samples: Samples) -> Iterator[SampleRun]:
        """Yield runs of whole batches in the order of the pieces; apply each before requesting the next.
        In a run of several batches a slot occurs once, and all were appended in one bucket of the longest level."""
        group: list[tuple[OwnedBatch, CachedBlock]] = []
        for piece in pieces:
            fingerprints = samples.fingerprint[piece.start : piece.end]
            block = self._block(piece, fingerprints)
            if group and not self._fits_run(group, piece, block):
                yield _make_run(group, samples)
                group = []
                block = self._block(piece, fingerprints)  # the lock was released: slots may have been freed
            if not group:
                self._next_mark()
                if block.distinct:
                    self._marks[block.known_slots] = self._mark
            group.append((piece, block))
        if group:
            yield _make_run(group, samples)

    def _fits_run(self, group: Sequence[tuple[OwnedBatch, CachedBlock]], piece: OwnedBatch, block: CachedBlock) -> bool:
        first, last = group[0][0], group[-1][0]
        return (
            block.distinct
            and group[-1][1].distinct
            and piece.start == last.end
            and piece.end - first.start <= RUN_ROWS
            and bucket_end(piece.entry.append_ms, self._step_ms) == bucket_end(first.entry.append_ms, self._step_ms)
            and self._mark_free(block.known_slots)
        )

    def _mark_free(self, slots: Slots) -> bool:
        """Mark slots of another batch of the run; False if the run has one of them."""
        compiled = kernels()
        if compiled is not None:
            return compiled.mark_slots(slots, self._marks, self._mark)
        if (self._marks.take(slots) == self._mark).any():
            return False
        self._marks[slots] = self._mark
        return True

    def _next_mark(self) -> None:
        self._mark += 1
        if self._mark > _LAST_MARK:
            self._marks[: self._table.used] = 0
            self._mark = 1

    def _block(self, piece: OwnedBatch, fingerprints: Fingerprints) -> CachedBlock:
        key = (piece.entry.source, piece.entry.block_hash)
        block = self._cache.get(key)
        if block is not None and self._is_valid(block, fingerprints):
            self._cache.move_to_end(key)
            return block
        fresh = self._look_up(piece.entry.source, fingerprints)
        self._remember(key, fresh)
        return fresh

    def _is_valid(self, block: CachedBlock, fingerprints: Fingerprints) -> bool:
        """True if a cached block is valid: its hash may collide, slots may have been freed, and a refused series may
        have room now."""
        if len(fingerprints) != len(block.slots):
            return False
        if block.epoch == self._table.epoch:
            ends = ((block.slots.item(at), fingerprints.item(at)) for at in (0, -1))
            held = self._table.fingerprint
            return all(slot == NO_SLOT or held.item(slot) == print_ for slot, print_ in ends)
        if not block.complete or not self._table.holds_series(block.slots, fingerprints, block.vshard).all():
            return False
        block.epoch = self._table.epoch
        return True

    def _look_up(self, source: str, fingerprints: Fingerprints) -> CachedBlock:
        vshard = virtual_shard(source)
        slots = self._table.add(fingerprints, vshard)
        known = slots[slots != NO_SLOT]
        ordered = np.sort(known)
        distinct = not (ordered[1:] == ordered[:-1]).any()
        return CachedBlock(vshard, slots, distinct, len(known) == len(slots), self._table.epoch)

    def _remember(self, key: tuple[str, int], block: CachedBlock) -> None:
        old = self._cache.pop(key, None)
        self._held_rows += len(block.slots) - (0 if old is None else len(old.slots))
        self._cache[key] = block
        while self._held_rows > self._cached_rows:
            _, gone = self._cache.popitem(last=False)
            self._held_rows -= len(gone.slots)


def _make_run(group: Sequence[tuple[OwnedBatch, CachedBlock]], samples: Samples) -> SampleRun:
    rows = slice(group[0][0].start, group[-1][0].end)
    blocks = [block.slots for _, block in group]
    return SampleRun(
        blocks[0] if len(blocks) == 1 else np.concatenate(blocks),
        samples.time_ms[rows],
        samples.birth_ms[rows],
        samples.type[rows],
        samples.cell[rows],
        np.array([piece.entry.append_ms for piece, _ in group], np.int64),
        np.array([piece.end - piece.start for piece, _ in group], np.int64),
        all(block.distinct for _, block in group),
        samples.strings,
    )
