"""Reduction by class, window by window, one part of the members at a time; gathering of values for reducers that need
all members of a class at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Floats, Ints
from artimon.compute.exact_sums import (
    ExactSums,
    class_sums,
    fits_int64,
    float_sums,
    from_halves,
    from_integers,
    integer_sums,
)
from artimon.compute.partials import EXTREMES, Partial, merge_into
from artimon.compute.ranks import BEST, BestCandidates, MemberBlock, Ranks
from artimon.compute.reduction import Reduction
from artimon.compute.rolling_windows import MaskOrBool, WindowValues
from artimon.compute.sample_order import Cells
from artimon.compute.statistics import SUM
from varstore.query.selection_parts import DENSE_FACTOR, KEPT_ROWS, PART, KindGroup, Places, SelectionPart

Mask = npt.NDArray[np.bool_]
BLOCK = 4_096
"""Classes of a part added to the total at a time."""


class _GroupRows:
    """Reduced windows of one group; arrays of (outputs, classes), neutral where nothing was added."""

    def __init__(self, group: KindGroup, reducer: str, outputs: int) -> None:
        self.group = group
        shape = (outputs, len(group.codes))
        self.count = np.zeros(shape, np.int64)
        self.wide_sums: dict[int, ExactSums] = {}
        """Sums of integers beyond 64 bits, by output."""
        sums = reducer in ("sum", "mean")
        fill = EXTREMES.get(reducer, SUM).whole
        self.cells = np.full(shape, fill, np.int64) if sums or reducer in EXTREMES else None
        """Extremes, sums of integers, or bits of the first part of sums of doubles."""
        self.rest = np.zeros(shape) if sums and group.double else None

    def row(self, output: int, shared: bool) -> _ReducedWindow:
        """Return one window; shared: as views of the arrays, which will not change any more."""
        arrays = (self.count[output], self.cells if self.cells is None else self.cells[output])
        rest = None if self.rest is None else self.rest[output]
        if not shared:
            arrays = (arrays[0].copy(), None if arrays[1] is None else arrays[1].copy())
            rest = None if rest is None else rest.copy()
        return _ReducedWindow(*arrays, rest, self.wide_sums.get(output))

    def set_window(self, output: int, row: _ReducedWindow) -> None:
        """Set one window from a result of `row`."""
        self.count[output] = row.members
        if self.cells is not None and row.cells is not None:
            self.cells[output] = row.cells
        if self.rest is not None and row.rest is not None:
            self.rest[output] = row.rest
        if row.wide_sums is not None:
            self.wide_sums[output] = row.wide_sums

    def set_sums(self, output: int, sums: Floats) -> None:
        """Set one window to these sums of doubles over all members."""
        self.count[output] = self.group.sizes
        if self.cells is not None and self.rest is not None:
            self.cells[output], self.rest[output] = sums.view(np.int64), 0.0

    def sums(self) -> ExactSums:
        """Return the sums of all windows as (classes, outputs)."""
        cells = self.cells if self.cells is not None else self.count
        if self.rest is not None:
            found = from_halves(cells.view(np.float64), self.rest)
        else:
            found = from_integers(cells)
            for output, (high, low) in self.wide_sums.items():
                found.high[output], found.low[output] = high, low
        return ExactSums(found.high.T, found.low.T)


class _ReducedWindow(NamedTuple):
    """Reduced window of one group; each (classes of the group,)."""

    members: Cells
    cells: Cells | None
    rest: Floats | None
    wide_sums: ExactSums | None


@dataclass(frozen=True, slots=True)
class ReducedRow:
    """Cached reduction of one row of a part, valid until the version of the row changes."""

    version: int
    groups: tuple[_ReducedWindow, ...]
    present: npt.NDArray[np.uint8] | None
    """Bitmap of the slots read that have a sample; None: all."""


class Scratch:
    """Reused temporary arrays of one query."""

    def __init__(self) -> None:
        self.cells = np.empty(PART, np.int64)
        self.hot = np.empty(int(PART * DENSE_FACTOR) + 1, np.int64)


class SampledSlots:
    """Slots of a part that have samples, and the count of approximate values."""

    def __init__(self, part: SelectionPart) -> None:
        self._part = part
        self._sampled: MaskOrBool = False
        self.approximate = 0
        """Number of values that are approximate."""

    def add_present(self, present: MaskOrBool) -> None:
        """Add the mask of slots with a sample in a bucket."""
        if isinstance(present, bool):
            self._sampled = self._sampled if not present else True
        elif self._sampled is not True:
            self._sampled = present.copy() if isinstance(self._sampled, bool) else np.logical_or(self._sampled, present)

    def sampled(self) -> Mask:
        """Return the mask of the slots read that had a sample in any of the buckets."""
        return np.full(self._part.size, self._sampled) if isinstance(self._sampled, bool) else self._sampled

    def count_approximate(self, guesses: Places | None) -> None:
        """Count the approximate values of one window."""
        if guesses is not None and len(guesses):
            self.approximate += len(self._part.accepted(guesses))


class RowReduction(SampledSlots):
    """Reduction of all windows of a part by one reducer."""

    def __init__(self, part: SelectionPart, reducer: str, outputs: int, scratch: Scratch) -> None:
        super().__init__(part)
        self._reducer, self._outputs, self._scratch = reducer, outputs, scratch
        self._to_cache: list[tuple[int, int, int, npt.NDArray[np.uint8] | None]] = []
        self._rows = [_GroupRows(group, reducer, outputs) for group in part.groups]

    def add(self, output: int, values: WindowValues) -> None:
        """Reduce the values of one window, given for all slots read of the part."""
        cells, present, guesses, _, sums = values
        self.count_approximate(guesses)
        if present is False:
            return
        if sums is not None:
            self._rows[0].set_sums(output, sums)
            return
        arranged, shown = None, None
        for rows in self._rows:
            if rows.rest is not None and self._add_reals(rows, output, cells, present):
                continue
            if arranged is None:
                arranged = self._arranged(cells)
                shown = None if isinstance(present, bool) else present.take(self._part.order)
            of = rows.group.rows
            self._reduce(rows, output, arranged[of], None if shown is None else shown[of])

    def _add_reals(self, rows: _GroupRows, output: int, cells: Ints, present: MaskOrBool) -> bool:
        """Sum doubles of a group; False if one of them is HUGE or NaN, which `_reduce` sums."""
        group, shown = rows.group, None if isinstance(present, bool) else present
        if group.class_of is None or rows.cells is None or rows.rest is None:
            return False
        values = np.ascontiguousarray(cells).view(np.float64)
        sums = class_sums(values, group.class_of, len(group.codes), int(group.sizes.sum()), shown)
        if sums is None:
            return False
        rows.cells[output], rows.rest[output] = sums.high.view(np.int64), sums.low
        if shown is None:
            rows.count[output] = group.sizes
        else:
            rows.count[output] = np.bincount(group.class_of, shown, len(group.codes) + 1)[:-1]
        return True

    def cache_row(self, output: int, number: int, version: int, present: MaskOrBool) -> None:
        """Mark a row to be cached for the next query once the part is done."""
        bits = None if isinstance(present, bool) else np.packbits(present)
        self._to_cache.append((output, number, version, bits))

    def _cache_rows(self) -> None:
        kept, shared = (
            self._part.cached_rows,
            len(self._to_cache) * 2 > self._outputs,
        )  # few rows must not keep all arrays
        for output, number, version, bits in self._to_cache:
            if len(kept) >= KEPT_ROWS and number not in kept:
                kept.pop(min(list(kept)), None)
            kept[number] = ReducedRow(version, tuple(rows.row(output, shared) for rows in self._rows), bits)

    def set_row(self, output: int, row: ReducedRow) -> None:
        """Set one window from a cached row."""
        for rows, reduced in zip(self._rows, row.groups, strict=True):
            rows.set_window(output, reduced)
        bits = row.present
        self.add_present(True if bits is None else np.unpackbits(bits, count=self._part.size).view(np.bool_))

    def _arranged(self, cells: Ints) -> Ints:
        """Copy cells into scratch in the order of the groups."""
        order = self._part.order
        out = self._scratch.cells[: len(order)]
        if self._reducer != "count":
            hot = self._scratch.hot[: len(cells)]
            np.copyto(hot, cells)  # sequential, so that the random access below hits the cache
            hot.take(order, mode="clip", out=out)  # "raise" would buffer
        return out

    def _reduce(self, rows: _GroupRows, output: int, cells: Ints, present: Mask | None) -> None:
        group = rows.group
        if present is None:
            rows.count[output] = group.sizes
        else:
            np.add.reduceat(present, group.starts, dtype=np.int64, out=rows.count[output])
        if rows.cells is None:
            return
        out = rows.cells[output]
        if present is not None:
            np.copyto(cells, EXTREMES.get(self._reducer, SUM).neutral(group.double), where=~present)
        if self._reducer in EXTREMES:
            kind = np.float64 if group.double else np.int64
            EXTREMES[self._reducer].join.reduceat(cells.view(kind), group.starts, out=out.view(kind))
        elif rows.rest is not None:
            sums = float_sums(cells.view(np.float64)[:, None], group.starts)
            out.view(np.float64)[:], rows.rest[output] = sums.high[:, 0], sums.low[:, 0]
        elif fits_int64(cells, len(cells)):
            np.add.reduceat(cells, group.starts, out=out)
        else:
            rows.wide_sums[output] = integer_sums(cells, group.starts)

    def add_to(self, reducing: Reduction) -> None:
        """Add all windows to those of the other parts."""
        total = reducing.total
        seen = self.sampled().take(self._part.order)
        for rows in self._rows:
            group = rows.group
            members = np.add.reduceat(seen[group.rows], group.starts, dtype=np.int64)
            double = (members > 0) & group.double
            sums = rows.sums() if self._reducer in ("sum", "mean") else None
            extreme = rows.cells.T if rows.cells is not None and sums is None else None
            for start in range(0, len(group.codes), BLOCK):
                some = slice(start, start + BLOCK)
                of = None if sums is None else ExactSums(sums.high[some], sums.low[some])
                further = None if extreme is None else extreme[some]
                part = Partial(self._reducer, members[some], double[some], rows.count.T[some], of, further)
                merge_into(total, part, group.codes[some])
        self._cache_rows()


class PartValues(SampledSlots):
    """Values that a reducer gathers, or members that it chooses, over all windows of a part."""

    def __init__(self, part: SelectionPart, reducing: Reduction) -> None:
        super().__init__(part)
        self._reducing, members, outputs = reducing, len(part.order), reducing.windows.outputs
        self._values: Floats | None = None
        self._present: Mask | None = None
        self._best: list[BestCandidates] = []
        if reducing.reducer in BEST:
            self._best = [
                BestCandidates(
                    reducing.reducer,
                    reducing.reducer_args,
                    group.starts,
                    int(group.sizes.sum()),
                    group.double,
                    self._ranks(group),
                )
                for group in part.groups
            ]
        else:
            self._values = np.empty((outputs, members))
        self._empty = set(range(outputs))
        """Windows without values."""

    def add(self, output: int, values: WindowValues) -> None:
        """Add the values of one window, given for all slots read of the part."""
        cells, present, guesses = values[:3]
        self.count_approximate(guesses)
        if present is False:
            if self._values is not None:
                self._mask()[output] = False
            return
        self._empty.discard(output)
        order = self._part.order
        arranged, here = cells.take(order), None if isinstance(present, bool) else present.take(order)
        if self._values is None:
            for group, best in zip(self._part.groups, self._best, strict=True):
                best.add(arranged[group.rows], None if here is None else here[group.rows])
            return
        row = self._values[output]
        for group in self._part.groups:
            mine = arranged[group.rows]
            row[group.rows] = mine.view(np.float64) if group.double else mine
        if here is not None:
            row[~here] = np.nan
            self._mask()[output] = here

    def _ranks(self, group: KindGroup) -> Ranks | None:
        """Return the ranks of the members of a group."""
        ranks, part = self._reducing.ranks, self._part
        return None if ranks is None else lambda: ranks()[part.members_at(part.order[group.rows])]

    def _mask(self) -> Mask:
        if self._present is None:
            self._present = np.ones((self._reducing.windows.outputs, len(self._part.order)), np.bool_)
        return self._present

    def add_to(self, reducing: Reduction) -> None:
        """Add members, and gathered values or chosen members, to the result."""
        part, seen = self._part, self.sampled().take(self._part.order)
        codes = np.zeros(len(part.order), np.int64)
        for group in part.groups:
            codes[group.rows] = np.repeat(group.codes, group.sizes)
        reducing.total.members[:] += np.bincount(codes[seen], minlength=reducing.classes)
        if self._values is not None:
            self._values[sorted(self._empty)] = np.nan
            reducing.blocks.append(MemberBlock(codes, self._values, self._present))
            return
        chosen = [
            group.rows.start + np.flatnonzero(b.finish()) for group, b in zip(part.groups, self._best, strict=True)
        ]
        places = part.order[np.concatenate(chosen)] if chosen else part.order[:0]
        reducing.best.append(part.members_at(places))
