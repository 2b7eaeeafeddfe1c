"""One level: a ring of bucket rows; reading, export and import. rows.py opens, fills, closes and packs rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells
from artimon.compute.statistics import FIELD_OF, FIELDS, FOLDS, to_double
from artimon.model.grid import Grid
from varstore.cells.compressed_columns import index_array, index_count
from varstore.cells.level_rows import ALL_FIELDS, LevelRows
from varstore.cells.open_block import Columns, OpenBlock, copy_row
from varstore.cells.packed_block import NeedsBatchRead, PackedBlock, warm_blocks
from varstore.cells.slot_segments import BucketRow, SlotSelection, group_by_segment


class LevelRing(LevelRows):
    """Ring of the bucket rows of one level. Not locked: the owner's lock guards it."""

    # reading

    def bucket_numbers(self) -> list[int]:
        """Return the bucket numbers of nonempty rows, ascending."""
        return sorted(number for number in self._held if self.version(number))

    def version(self, number: int) -> int:
        """Version of bucket `number`: rises with every change of the bucket; 0 before the first."""
        row = self._held.get(number)
        if row is None:
            return 0
        return max(row.changed, *(one.changed for one in self._pending(number)), 0)

    def selection(self, slots: Cells) -> SlotSelection:
        """Group slots once for reading them in many rows."""
        return SlotSelection(slots, self._segment)

    def _cells(self, number: int, chosen: SlotSelection, names: Collection[str]) -> dict[str, npt.NDArray[Any]] | None:
        """Return the fields `names` of bucket `number`, possibly as views; None if the bucket is empty."""
        row = self._held.get(number)
        if row is None:
            return None
        pending = self._pending(number)
        if not pending:
            return self._stored(row, chosen, names) if row.changed else None
        cells = OpenBlock.wrap({name: column.copy() for name, column in self._stored(row, chosen, ALL_FIELDS).items()})
        kinds = self._packer.kinds.types_of(chosen.slots)
        for one in pending:
            if one.open is not None and self._finest is not None:
                later_ms = (one.number - 1) * self._finest.step_ms - (number - 1) * self.step_ms
                cells.absorb(OpenBlock.wrap(one.open.cells(chosen.slots, ALL_FIELDS)), later_ms, kinds, self._texts)
        return cells.cells(slice(0, cells.n), names)

    def _stored(self, row: BucketRow, chosen: SlotSelection, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Return fields of the row as this level stores it, without pending open rows of the finest level."""
        if row.open is not None and row.open_from == 0:
            return row.open.cells(chosen.slots, names)
        parts = chosen.segments
        if len(parts) == 1 and isinstance(parts[0].rows, slice):
            block = row.block(parts[0].segment, self._segment)
            if block is not None:
                return block.cells(parts[0].places, names)
        out = {name: np.empty(len(chosen.slots), FIELDS[name]) for name in names}
        for part in parts:
            block = row.block(part.segment, self._segment)
            held = {} if block is None else block.cells(part.places, names)
            for name, column in out.items():
                column[part.rows] = held[name] if held else 0
        return out

    def read_row(
        self, number: int, slots: Cells | SlotSelection, names: Collection[str]
    ) -> dict[str, npt.NDArray[Any]] | None:
        """Return the statistics `names` of one bucket for these slots, each (n,); None if the bucket is empty.

        count is an unsigned integer of any width, last, min, max and sum are cells (int64), last_time is int64 epoch
        ms. Only `count` is defined where count == 0; the rest is then arbitrary: mask with `count > 0`. Arrays may be
        read-only views of the store: use or copy them before the owner's lock is released, and never write to them.
        To read many rows of the same slots pass `selection(slots)`. Ascending slots are faster, a run is fastest."""
        chosen = slots if isinstance(slots, SlotSelection) else self.selection(slots)
        held = self._cells(number, chosen, {FIELD_OF[name] for name in names})
        if held is None:
            return None
        left_ms = np.int64((number - 1) * self.step_ms)
        return {name: held[FIELD_OF[name]] + left_ms if name == "last_time" else held[name] for name in names}

    def read_cells(self, slots: Cells, first: int, out: Mapping[str, Cells]) -> None:
        """Fill each row of `out`, zero before, with the statistics of the buckets from number `first` on.

        Reads cell by cell: much faster than `read_row` for few slots."""
        fields = [FIELD_OF[name] for name in out]
        each = slots.tolist()
        for i in range(len(next(iter(out.values())))):
            row = self._held.get(first + i)
            if row is None:
                continue
            try:
                if self._pending(row.number):
                    raise NeedsBatchRead
                found = [self._cell(row, slot, fields) for slot in each]
            except NeedsBatchRead:
                copy_row(self.read_row(row.number, slots, out), out, i)
                continue
            left_ms = (row.number - 1) * self.step_ms
            for j, values in enumerate(found):
                for (name, matrix), value in zip(out.items(), values or (), strict=False):
                    matrix[i, j] = value + left_ms if name == "last_time" else value

    def _cell(self, row: BucketRow, slot: int, fields: Sequence[str]) -> tuple[int, ...] | None:
        """Return one cell; None if it is empty. Raises NeedsBatchRead like `PackedBlock.cell`."""
        if row.open is not None and slot >= row.open_from:
            return row.open.cell(slot, fields)
        segment, place = divmod(slot, self._segment)
        block = row.segments.get(segment)
        return None if block is None else block.cell(place, fields)

    def warm(self, numbers: Iterable[int], slots: Cells | SlotSelection, names: Collection[str]) -> None:
        """Read what these buckets have on disk into the page cache, so that a read under the lock does not wait for
        the disk. Call without the lock. Raises CellsUnreadable."""
        if self.is_follower:
            chosen = slots if isinstance(slots, SlotSelection) else self.selection(slots)
            rows = (row for number in numbers if (row := self._held.get(number)) is not None)
            blocks = (row.segments.get(part.segment) for row in rows for part in chosen.segments)
            warm_blocks(blocks, {FIELD_OF[name] for name in names})

    def capture_row(
        self, number: int, chosen: SlotSelection, names: Collection[str]
    ) -> PackedBlock | dict[str, npt.NDArray[Any]] | None:
        """Return one bucket of slots of one segment for reading after the lock is released; None if it is empty.
        Either immutable packed cells, to be read at `chosen.parts[0].inside`, or copies of the fields `names`."""
        row = self._held.get(number)
        if row is None:
            return None
        if self._pending(number):
            return self._cells(number, chosen, names)
        part = chosen.segments[0]
        block = row.block(part.segment, self._segment) if row.changed else None
        if block is None:
            return None
        frozen = block.frozen() if isinstance(block, PackedBlock) else None
        return frozen or {name: column.copy() for name, column in block.cells(part.places, names).items()}

    def read(self, slots: Cells, grid: Grid, statistics: Collection[str]) -> dict[str, Cells]:
        """Return `statistics`, each (grid.n, slots), zero where count is zero; the grid has the step of this level."""
        names = set(statistics) | {"count"}
        out = {name: np.zeros((grid.n, len(slots)), np.int64) for name in statistics}
        first = grid.start_ms // self.step_ms + 1
        chosen = self.selection(slots)
        for i, number in enumerate(range(first, first + grid.n)):
            copy_row(self.read_row(number, chosen, names), out, i)
        return out

    # whole rows, for snapshots

    def export_row(self, number: int, slots: Cells) -> dict[str, npt.NDArray[Any]]:
        """Return FIELDS of bucket `number`, each (n,): folded statistics where count > 1, `last` and its offset where
        count > 0, zero elsewhere."""
        held = self._cells(number, self.selection(slots), ALL_FIELDS)
        if held is None:
            return {name: np.zeros(len(slots), dtype) for name, dtype in FIELDS.items()}
        some, several = held["count"] > 0, held["count"] > 1
        return {
            name: np.where(several if name in FOLDS else some, column, column.dtype.type(0))
            for name, column in held.items()
        }

    def close_next(self, number: int) -> bool:
        """Close one segment of the rows that `import_row` of that bucket would close at once; False if none is left."""
        row = self._held.get(number)
        rows = self._pending(number) + ([row] if row is not None and row.open is not None else [])
        if not rows:
            return False
        (self._finest or self)._close_segment(rows[0])
        return True

    def import_row(self, number: int, slots: Cells, columns: Columns) -> None:
        """Overwrite cells of bucket `number` with an `export_row`; ignored if a later bucket has its place.

        The row is closed, so later samples go to every level at once: a snapshot has this bucket in its coarser levels
        already. Fastest with as many slots of a segment per call as possible."""
        for pending in self._pending(number):
            if self._finest is not None:
                self._finest._close(pending)
        row = self._row(number, imported=True)
        if row is None or not len(slots):
            return
        self._close(row)
        self._used = max(self._used, int(slots.max()) + 1)
        row.changed = next(self._changes)
        for part in group_by_segment(slots, self._segment):
            cells = {name: columns[name][part.rows] for name in ALL_FIELDS}
            n = min(self._segment, self._used - part.segment * self._segment)
            if part.segment in row.segments or 2 * index_count(part.places) < n:
                self._put(row, part.segment, part.places, cells)
            else:  # most of a segment: pack it directly, without opening it
                block = OpenBlock.empty(n)
                block.overwrite(part.places, cells)
                self._keep(row, part.segment, block)
        self._pack_surplus()

    # single series

    def _rewrite(self, slots: Cells, change: Any, numbers: Collection[int] | None = None) -> None:
        """Replace every nonempty cell of these slots by `change(columns)`, in buckets `numbers` (None: in all)."""
        chosen = self.selection(slots)
        for row in [row for row in self._held.values() if numbers is None or row.number in numbers]:
            for part in chosen.segments:
                block = row.block(part.segment, self._segment)
                if block is None or not (some := block.counts(part.places) > 0).any():
                    continue
                inside = index_array(part.places)[some]
                columns = change(block.cells(inside, ALL_FIELDS))
                row.changed = next(self._changes)
                if row.open is not None and part.segment * self._segment >= row.open_from:
                    row.open.overwrite(inside + part.segment * self._segment, columns)
                else:
                    self._put(row, part.segment, inside, columns)
        self._pack_surplus()

    def clear(self, slots: Cells, numbers: Collection[int] | None = None) -> None:
        """Empty every cell of these slots in buckets `numbers` (None: in all)."""
        self._rewrite(slots, lambda columns: {**columns, "count": np.zeros_like(columns["count"])}, numbers)

    def bucket_numbers_until(self, time_ms: int) -> list[int]:
        """Return the nonempty buckets that may hold samples up to `time_ms`, ascending."""
        return [number for number in self.bucket_numbers() if (number - 1) * self.step_ms < time_ms]

    def to_double(self, slots: Cells) -> None:
        """Convert the cells of INTEGER series that became DOUBLE."""
        self._rewrite(slots, to_double)

    def last_cells(self, slots: Cells) -> Cells:
        """Return every `last` cell that one of `slots` holds, unordered."""
        found, chosen = [np.zeros(0, np.int64)], self.selection(slots)
        for row in self._held.values():
            if row.changed:
                held = self._stored(row, chosen, ("count", "last"))
                found.append(held["last"][held["count"] > 0])
        return np.concatenate(found)

    # memory

    def bytes_used(self) -> int:
        """Estimate of the resident bytes of cells: open, packed, and reopened."""
        opened = sum(self._used * (row.open.nbytes // max(1, row.open.n)) for row in self._open if row.open is not None)
        packed = sum(block.nbytes for row in self._held.values() for block in row.segments.values())
        return opened + packed + self._packer.nbytes
