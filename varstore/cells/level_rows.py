"""Rows of one level: opening, filling, closing and packing. The newest rows are open arrays over all slots, older ones
packed segments of 65,536 slots.

Ordinary samples do not touch a level whose step is a multiple of the finest one's. They go into open rows of the finest
level only. When such a row closes, each of its segments is added, cell by cell, to the buckets of the coarser levels
that cover it (`OpenBlock.absorb`, a few ns a series), and packed. Until then reading a coarser bucket adds the cells of
the open rows. So a sample costs one random access to each array, not one per level. Samples for a closed row go to
every level at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as count_up

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import distinct
from artimon.compute.sample_order import Cells, TextTable
from artimon.compute.statistics import FIELDS
from artimon.model.grid import Level, bucket_end, bucket_ends
from varstore.cells.cell_updates import CellUpdate, Mask, aggregate_batch
from varstore.cells.compressed_columns import Indexes
from varstore.cells.level_packer import LevelPacker, Unpacked
from varstore.cells.open_block import Columns, OpenBlock
from varstore.cells.packed_block import PackedBlock
from varstore.cells.slot_segments import SEGMENT, BucketRow, LevelSamples, TypeLookup

RESERVED_ROWS = 2
"""Rows of a ring that late samples cannot use: one for the next bucket, which may open early, and one unused."""
OPEN_ROWS = 3
"""Rows of the finest level open at a time: samples of a whole minute may take two minutes to arrive."""
MAX_OPEN_ROWS = OPEN_ROWS + 3
"""Limit of open rows; beyond it the oldest is closed at once, at any cost."""
REOPEN_CELLS = 1_024
"""Open a packed segment again, instead of patching it, if at least this many cells come at once."""
STALE_PATCH = 256
"""Pack a packed segment with more patched cells than this again once its bucket is over and writes cease."""
_NEVER = np.iinfo(np.int64).min
ALL_FIELDS = tuple(FIELDS)


class LevelRows:
    """Rows of a level: `level.count` buckets and `spare` more. Not locked: the owner's lock guards it.

    Invariant: bucket k (it ends at k * step) has the place k % rows, and `_greatest[place]` is the greatest k that ever
    opened there; samples for a smaller k at that place are dropped.
    """

    def __init__(
        self,
        level: Level,
        spare: int,
        capacity: int,
        kinds: TypeLookup,
        texts: TextTable,
        finest: LevelRows | None = None,
        segment: int = SEGMENT,
    ) -> None:
        self.level, self.step_ms, self.rows, self.capacity = level, level.step_ms, level.count + spare, capacity
        self._texts, self._segment, self.segment = texts, segment, segment
        self._finest = finest if finest is not None and self._fits_on(finest) else None
        self._packer = LevelPacker(kinds, self._finest is None, segment)
        self._followers: list[LevelRows] = []
        self._changes: Iterator[int] = count_up(1)
        if self._finest is not None:
            self._finest._followers.append(self)
            self._changes = self._finest._changes
        self._greatest = np.full(self.rows, _NEVER, np.int64)
        self._held: dict[int, BucketRow] = {}
        self._open: list[BucketRow] = []  # rows with an open block, ascending
        self._pool: list[OpenBlock] = []
        self._packing_queue = Unpacked()
        self._used = 0
        self._head_ms = 0

    def _fits_on(self, finest: LevelRows) -> bool:
        """True if buckets here consist of whole ones of `finest`, and accept every sample that `finest` accepts."""
        reach = (self.rows - RESERVED_ROWS - 1) * self.step_ms
        return self.step_ms % finest.step_ms == 0 and reach >= (finest.rows - RESERVED_ROWS) * finest.step_ms

    @property
    def is_follower(self) -> bool:
        """True if samples reach this level through the finest one, except those that its `add` returns."""
        return self._finest is not None

    def late_until(self, append_ms: int) -> int:
        """Return the greatest sample time that is late for this level in a batch appended at `append_ms`."""
        return bucket_end(append_ms, self.step_ms) - (self.rows - RESERVED_ROWS) * self.step_ms

    def late_until_each(self, append_ms: Cells) -> Cells:
        """Return `too_old` of each append time."""
        return bucket_ends(append_ms, self.step_ms) - (self.rows - RESERVED_ROWS) * self.step_ms

    # writing

    def add(self, samples: LevelSamples, used: int) -> Mask | None:
        """Add samples that are not too old. Return a mask of those to add to each follower too, None: none.

        used: upper bound of the slots in use."""
        self._used = max(self._used, used)
        number = -(-samples.time_ms // self.step_ms)
        first = int(number[0])
        if (number == first).all():
            return self._add_to(first, samples)
        direct = np.zeros(len(number), np.bool_)
        for k in distinct(number).tolist():  # ascending: of two buckets with one place the later one stays
            mine = number == k
            closed = self._add_to(k, samples.pick(mine))
            if closed is not None:
                direct[mine] = closed
        return direct if direct.any() else None

    def _add_to(self, number: int, samples: LevelSamples) -> Mask | None:
        """Add samples of one bucket; return a mask of those without an open row, or None if every row was open."""
        row = self._row(number)
        if row is None:
            return np.ones(len(samples.slots), np.bool_)
        row.changed = next(self._changes)
        part = self._update_of(number, samples)
        if row.open is None:
            self._add_closed(row, part)
            return np.ones(len(samples.slots), np.bool_)
        if row.open_from == 0:
            row.open.merge(part, self._texts)
            return None
        opened = part.at >= row.open_from
        if opened.any():
            row.open.merge(part.select(opened, 0), self._texts)
        if not opened.all():
            self._add_closed(row, part.select(~opened, 0))
        return samples.slots < row.open_from

    def open_block(self, number: int) -> OpenBlock | None:
        """Return the cells of bucket `number` if all of it is open."""
        row = self._held.get(number)
        return None if row is None or row.open_from else row.open

    def mark_changed(self, number: int, used: int) -> None:
        """Note that cells of the `open_block` of this bucket were written; `used` as in `add`."""
        self._used = max(self._used, used)
        self._held[number].changed = next(self._changes)

    def settled_ms(self, head_ms: int) -> int:
        """Return the time up to which no sample is in an open row or opens one."""
        newest = head_ms // self.step_ms - OPEN_ROWS
        return min([newest, *(row.number - 1 for row in self._open)]) * self.step_ms

    def add_closed(self, number: int, part: CellUpdate, used: int) -> None:
        """Add cells of a bucket, all up to `settled_ms`, to this level only."""
        self._used = max(self._used, used)
        row = self._row(number, imported=True)
        if row is not None:
            row.changed = next(self._changes)
            self._add_closed(row, part)

    def _update_of(self, number: int, samples: LevelSamples) -> CellUpdate:
        slots, time_ms, cells, bounds, distinct_slots = samples
        start_ms = (number - 1) * self.step_ms
        if distinct_slots:
            return CellUpdate(slots, time_ms - start_ms, cells, bounds)
        return aggregate_batch(slots, time_ms, cells, bounds, self._texts, start_ms)

    def _add_closed(self, row: BucketRow, part: CellUpdate) -> None:
        """Add to the segments of a closed part of a row."""
        segments = part.at // self._segment
        for segment in distinct(segments).tolist():
            mine = part.select(segments == segment, segment * self._segment)
            block = row.segments.get(segment)
            if isinstance(block, PackedBlock) and len(mine.at) < REOPEN_CELLS:
                cells = OpenBlock.wrap(block.copy(mine.at))
                at, mine.at = mine.at, np.arange(len(mine.at))
                cells.merge(mine, self._texts)
                self._put(row, segment, at, cells.cells(slice(0, cells.n), ALL_FIELDS))
            else:
                self._writable(row, segment).merge(mine, self._texts)
        self._pack_surplus()

    def _put(self, row: BucketRow, segment: int, at: Indexes, columns: Columns) -> None:
        """Overwrite cells of a segment."""
        block = row.segments.get(segment)
        if isinstance(block, PackedBlock) and block.overwrite(at, columns):
            if block.patched > STALE_PATCH:
                self._packing_queue.patch((row.number, segment), self._head_ms)
        else:
            self._writable(row, segment).overwrite(at, columns)

    def _writable(self, row: BucketRow, segment: int) -> OpenBlock:
        """Return the open block of a segment of a row; create or unpack it if needed."""
        block = row.segments.get(segment)
        if not isinstance(block, OpenBlock):
            n = min(self._segment, self.capacity - segment * self._segment)
            block = OpenBlock.reserve(n) if block is None else block.to_open_block(n)
            row.segments[segment] = block
        self._packing_queue.write((row.number, segment), self._head_ms)
        return block

    # rows

    def _row(self, number: int, imported: bool = False) -> BucketRow | None:
        """Return the row of a bucket, created if missing; None if a later bucket has its place."""
        place = number % self.rows
        current = int(self._greatest[place])
        if current > number:
            return None
        if current < number:
            self._drop(current)
            self._greatest[place] = number
            row = self._held[number] = BucketRow(number)
            if self._finest is None and not imported and self._is_recent(number):
                self._open_row(row)
        return self._held[number]

    def _is_recent(self, number: int) -> bool:
        newest = self._open[-1].number if self._open else _NEVER
        return number > newest - OPEN_ROWS and (number + OPEN_ROWS) * self.step_ms > self._head_ms

    def _open_row(self, row: BucketRow) -> None:
        row.open = self._pool.pop() if self._pool else OpenBlock.reserve(self.capacity)
        self._open = sorted([*self._open, row], key=lambda one: one.number)
        for follower in self._followers:  # the covering bucket opens now, but is filled later
            follower._row(follower._covering(row.number, self))
        while len(self._open) > MAX_OPEN_ROWS:
            self._close(self._open[0])

    def _covering(self, number: int, finest: LevelRows) -> int:
        """Return the bucket of this level that covers bucket `number` of the finest level."""
        return -(-number * finest.step_ms // self.step_ms)

    def _pending(self, number: int) -> list[BucketRow]:
        """Return the open rows of the finest level that bucket `number` covers."""
        finest = self._finest
        if finest is None:
            return []
        return [row for row in finest._open if self._covering(row.number, finest) == number]

    def _drop(self, number: int) -> None:
        """Remove a row whose place a later bucket takes."""
        row = self._held.get(number)
        if row is not None:
            self._close(row)
            del self._held[number]
            self._packing_queue.forget(number, row.segments)

    # closing

    def maintain(self, head_ms: int) -> bool:
        """Close or pack one segment that is due, which takes some ms; False if none is due.

        head_ms: greatest append time."""
        self._head_ms = max(self._head_ms, head_ms)
        if self._open and (self._open[0].number + OPEN_ROWS - 1) * self.step_ms <= self._head_ms:
            self._close_segment(self._open[0])
            return True
        return self._pack_due()

    def _close(self, row: BucketRow) -> None:
        """Close all open segments of a row at once."""
        while row.open is not None:
            self._close_segment(row)

    def _close_segment(self, row: BucketRow) -> None:
        """Add the first open segment to the followers, pack it, and release its pages."""
        block = row.open
        if block is None:
            return
        start = row.open_from
        stop = min(start + self._segment, self._used)
        if start < stop:
            self._replace_segment(row, start // self._segment, block.view(start, stop))
            block.clear_pages(start, min(start + self._segment, self.capacity))
        row.open_from = start + self._segment
        if row.open_from >= self._used:
            self._open.remove(row)
            row.open, row.open_from = None, 0
            block.has_folded = False
            self._pool = [*self._pool, block][:OPEN_ROWS]

    def _replace_segment(self, row: BucketRow, segment: int, cells: OpenBlock) -> None:
        kinds = self._packer.types_in(segment, cells.n)
        for follower in self._followers:
            follower._absorb(row.number, segment, cells, kinds)
        self._keep(row, segment, cells, kinds)

    def _absorb(self, number: int, segment: int, cells: OpenBlock, kinds: npt.NDArray[np.uint8]) -> None:
        """Add a closing segment of bucket `number` of the finest level."""
        finest = self._finest
        if finest is None or not cells.count.any():
            return
        covering = self._covering(number, finest)
        row = self._row(covering)
        if row is not None:
            self._used, self._head_ms = max(self._used, finest._used), max(self._head_ms, finest._head_ms)
            row.changed = next(self._changes)
            later_ms = (number - 1) * finest.step_ms - (covering - 1) * self.step_ms
            self._writable(row, segment).absorb(cells, later_ms, kinds, self._texts)

    def _pack_due(self) -> bool:
        """Pack one segment that is due."""
        finest_ms = (self._finest or self).step_ms
        due = self._packing_queue.due(self._head_ms, self.step_ms, finest_ms, OPEN_ROWS)
        if due is not None:
            self._pack(*due)
        return due is not None

    def _pack_surplus(self) -> None:
        while self._packing_queue.may_be_packed() and self.pack_one():
            pass

    def set_unpacked_allowance(self, segments: int) -> None:
        """Let writes leave this many open segments of closed rows unpacked, for `pack_one` to pack later."""
        self._packing_queue.spare = segments

    def unwritten(self) -> list[PackedBlock]:
        """Return the packed segments whose columns are all in memory, oldest bucket first."""
        blocks = (block for number in sorted(self._held) for block in self._held[number].segments.values())
        return [block for block in blocks if isinstance(block, PackedBlock) and not block.extents and block.nbytes]

    def pack_one(self) -> bool:
        """Pack the least recently written segment if there are too many. Return True if more are to be packed."""
        surplus = self._packing_queue.surplus(-(-self._used // self._segment))
        if surplus > 0:
            self._pack(*self._packing_queue.oldest())
        return surplus > 1

    def _pack(self, number: int, segment: int) -> None:
        self._packing_queue.forget(number, (segment,))
        row = self._held[number]
        block = row.segments.pop(segment)
        n = min(self._segment, self._used - segment * self._segment)
        self._keep(row, segment, block.to_open_block(n) if isinstance(block, PackedBlock) else block.view(0, n))

    def _keep(self, row: BucketRow, segment: int, block: OpenBlock, kinds: npt.NDArray[np.uint8] | None = None) -> None:
        """Pack these cells as a segment of a closed row; no-op if all are empty."""
        packed = self._packer.pack(segment, block, kinds)
        if packed is not None:
            row.segments[segment] = packed
