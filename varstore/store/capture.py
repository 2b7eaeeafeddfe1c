"""Copy-on-write capture: a consistent copy of slots and rows of a store, made piece by piece while samples are applied.

A piece is one row, or the per-slot state, for a block of up to 1,024 slots. Each writer copies a pending piece before
changing it (`guard`). So an apply pays for the few pieces that it touches, no thread waits for the whole copy, and
every piece is as it was at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells
from artimon.compute.statistics import STATISTICS
from varstore.cells.level_ring import LevelRing

BLOCK_BITS = 10
BLOCKS_PER_PART = 64
"""Blocks copied under one hold of the lock: 65,536 slots, one part of a snapshot."""
STATE_KEY = (-1, 0)
"""Key of the per-slot state; rows have (number of the ring, number of the bucket)."""
INCARNATIONS_KEY = (-2, 0)
"""Key of the past incarnations: a slot may occur several times."""

NO_BLOCKS = np.zeros(0, np.int64)

CaptureKey = tuple[int, int]
Columns = dict[str, npt.NDArray[Any]]
Copy = Callable[[CaptureKey, Cells], Columns]
Encode = Callable[[CaptureKey, Columns], bytes]
Lock = AbstractContextManager[Any]


class CaptureClosed(RuntimeError):
    """The capture was closed while its parts were read."""


class Capture:
    """Copy in progress. Call everything except `parts` with the store's lock held, the constructor too.

    Invariant: a piece is pending (unchanged in the store since the beginning), or saved, or taken."""

    def __init__(self, rings: Sequence[LevelRing], copy: Copy, slots: Cells, keys: Sequence[CaptureKey]) -> None:
        """Capture the pieces `keys` of these slots (ascending). `copy(key, slots)` returns columns that begin with
        "slot", ascending, a subset of `slots`."""
        self._rings, self._copy = rings, copy
        self._blocks = int(slots[-1] >> BLOCK_BITS) + 1 if len(slots) else 0
        self._edges = np.searchsorted(slots, np.arange(self._blocks + 1) << BLOCK_BITS)
        self._slots = slots
        self._filled = np.diff(self._edges) > 0
        self._pending: dict[CaptureKey, npt.NDArray[np.bool_]] = {key: self._filled.copy() for key in keys}
        self._in_row = {(ring, number % rings[ring].rows): number for ring, number in keys if ring >= 0}
        self._saved: dict[tuple[CaptureKey, int], Columns] = {}
        self._keys = list(keys)
        self._closed = False

    # for writers

    def before_apply(self, slots: Cells, time_ms: Cells) -> None:
        """Save the pieces that samples of these slots (-1: none) and times will change."""
        if not len(slots) or not self._pending:
            return
        blocks = self._blocks_of(slots)
        self._save(STATE_KEY, blocks)
        self._save(INCARNATIONS_KEY, blocks)
        for at, ring in enumerate(self._rings):
            first, last = (-(-int(edge) // ring.step_ms) for edge in (time_ms.min(), time_ms.max()))
            numbers = range(first, last + 1) if last - first < ring.rows else np.unique(-(-time_ms // ring.step_ms))
            for number in numbers:
                self.before_row(at, int(number), blocks)

    def before_row(self, at: int, number: int, blocks: Cells = NO_BLOCKS) -> None:
        """Save these blocks of bucket `number`, or all of the older bucket whose row it takes."""
        held = self._in_row.get((at, number % self._rings[at].rows))
        if held is None:
            return
        if held == number:
            self._save((at, number), blocks)
        elif held < number:  # a new bucket takes the row
            self._save((at, held), np.arange(self._blocks))

    def before_change(self, slots: Cells) -> None:
        """Save all pieces of these slots before an arbitrary change."""
        if len(slots):
            blocks = self._blocks_of(slots)
            for key in list(self._pending):
                self._save(key, blocks)

    def _blocks_of(self, slots: Cells) -> Cells:
        blocks: Cells = np.unique(slots >> BLOCK_BITS)
        return blocks[(blocks >= 0) & (blocks < self._blocks)]

    def _save(self, key: CaptureKey, blocks: Cells) -> None:
        pending = self._pending.get(key)
        if pending is None:
            return
        for block, columns in self._copy_pending(key, blocks[pending[blocks]]):
            self._saved[key, block] = columns

    def _copy_pending(self, key: CaptureKey, blocks: Cells) -> Iterator[tuple[int, Columns]]:
        """Copy pending pieces and mark them as not pending."""
        if not len(blocks):
            return
        columns = self._copy(key, self._slots_in(blocks))
        edges = np.searchsorted(columns["slot"] >> BLOCK_BITS, np.append(blocks, blocks[-1] + 1))
        self._pending[key][blocks] = False
        for i, block in enumerate(blocks.tolist()):
            yield block, {name: array[edges[i] : edges[i + 1]] for name, array in columns.items()}

    def _slots_in(self, blocks: Cells) -> Cells:
        first, last = int(blocks[0]), int(blocks[-1])
        if last - first == len(blocks) - 1:
            return self._slots[self._edges[first] : self._edges[last + 1]]
        return np.concatenate([self._slots[self._edges[b] : self._edges[b + 1]] for b in blocks.tolist()])

    # for the reader of the copy

    def parts(self, feeding: Lock, cells: Lock, encode: Encode) -> Iterator[tuple[CaptureKey, bytes]]:
        """Yield every key in encoded parts of up to 65,536 slots. `feeding` is held for a part, `cells`, the store's
        lock, for its copy. Feeding and this thread take turns: side by side, each would wait for the interpreter in
        each of its many short steps."""
        for key in self._keys:
            for first in range(0, self._blocks, BLOCKS_PER_PART):
                self._warm(key, first)
                part = b""
                with feeding:
                    with cells:
                        if self._closed:
                            raise CaptureClosed("the capture was closed: begin a new image")
                        columns = self._take(key, np.arange(first, min(first + BLOCKS_PER_PART, self._blocks)))
                    if columns is not None and len(columns["slot"]):
                        part = encode(key, columns)
                if part:
                    yield key, part
            with cells:
                self._pending.pop(key, None)

    def _warm(self, key: CaptureKey, first: int) -> None:
        """Read a part of a row from the disk before the lock is taken."""
        if key[0] >= 0:
            last = min(first + BLOCKS_PER_PART, self._blocks)
            self._rings[key[0]].warm((key[1],), self._slots[self._edges[first] : self._edges[last]], STATISTICS)

    def _take(self, key: CaptureKey, blocks: Cells) -> Columns | None:
        pending = blocks[self._pending[key][blocks]]
        if len(pending) == int(self._filled[blocks].sum()):  # all pieces are still unchanged
            self._pending[key][blocks] = False
            return self._copy(key, self._slots_in(blocks))
        pieces = dict(self._copy_pending(key, pending))
        for block in blocks.tolist():
            saved = self._saved.pop((key, block), None)
            if saved is not None:
                pieces[block] = saved
        if not pieces:
            return None
        ordered = [pieces[block] for block in sorted(pieces)]
        if len(ordered) == 1:
            return ordered[0]
        names = {name: None for piece in ordered for name in piece}
        return {name: np.concatenate([_column(piece, name) for piece in ordered]) for name in names}

    def close(self) -> None:
        """Stop copying and free saved pieces. Call with the store's lock held."""
        self._closed = True
        self._pending.clear()
        self._saved.clear()


def _column(piece: Columns, name: str) -> npt.NDArray[Any]:
    """Return a column of a piece; a missing one (`text`) becomes all None."""
    return piece[name] if name in piece else np.full(len(piece["slot"]), None, object)
