"""Layout of the members of a selection in the store and in classes: parts that are read and reduced one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import DOUBLE, STRING, Types
from artimon.compute.functions import WINDOW_FUNCTIONS
from artimon.compute.rolling_windows import MaskOrBool
from artimon.compute.sample_order import Cells
from varstore.cells.compressed_columns import Indexes, Words
from varstore.cells.level_ring import LevelRing
from varstore.cells.slot_segments import SlotSelection as Chosen
from varstore.index.slot_table import Slots

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
DENSE_FACTOR = 1.5
"""Read a range of slots whole if it is at most this many times as long as the number of members in it."""
PART, LEAST_PART = 65_536, 4_096
"""Greatest and least slots of a part, multiples of 64: temporaries of one row stay in the processor's cache."""
WINDOW_CELLS = 2_000_000
"""Limit of cells of a part in the columns that a window needs at a time."""
CLASS_CELLS = 1_500_000
"""Limit of the result cells of a part: classes x windows."""
KEPT_CLASSES, KEPT_MEMBERS, KEPT_ROWS = 2_000, 200_000, 100
"""Cache reduced rows for queries of at most this many classes, summed over parts, and members; the newest rows of each
part, at most 8 MB a query."""
_WHOLE, _REAL, _LEFT_OUT = 0, 1, 2


@dataclass(slots=True)
class KindGroup:
    """Members with one kind of value: `rows` of the order of a part, sorted by class."""

    rows: slice
    double: bool
    starts: Cells
    codes: Cells
    sizes: Cells
    class_of: Cells | None = None
    """(slots read,) index in `codes` of each member of a group of doubles; len(codes) for all other slots."""


@dataclass(slots=True)
class SelectionPart:
    """Part of a selection: slots of one segment, read and reduced together."""

    selection: Chosen
    """Slots read."""
    rows: slice
    """Range of the members in the selection."""
    places: Cells
    """(members,) index of each member in the slots read, ascending."""
    order: Cells
    """`places` sorted by kind and class, without members whose values are left out."""
    accepted_places: Cells
    """Places of the members whose type the window function takes."""
    double: MaskOrBool
    """Mask of the slots read that are DOUBLE."""
    groups: list[KindGroup]
    marks: Words
    """Bitmap over the places of the segment, set for members; see `PackedBlock.single_in`."""
    stop: int
    """All members are before this place of the segment."""
    not_members: Mask | None
    """Mask of the slots read that are not members; None: there are none."""
    cached_rows: dict[int, Any] = field(default_factory=dict)
    """Reduced rows by bucket number."""

    @property
    def inside(self) -> Indexes:
        """Places in the segment of the slots read."""
        return self.selection.segments[0].places

    @property
    def size(self) -> int:
        """Number of slots read."""
        return len(self.selection.slots)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Spread values of the members of the selection over the slots read; zero elsewhere."""
        out: npt.NDArray[Any] = np.zeros(self.size, values.dtype)
        out[self.places] = values[self.rows]
        return out

    def members_at(self, places: Places) -> Places:
        """Return the members of the selection at these places of the slots read."""
        found: Places = np.searchsorted(self.places, places)
        return found + int(self.rows.start)

    def accepted(self, places: Places) -> Places:
        """Return those of `places` that are in `asked`."""
        mine = np.zeros(self.size, np.bool_)
        mine[self.accepted_places] = True
        return places[mine[places]]

    def spread_mask(self, mask: Mask) -> MaskOrBool:
        """`spread` of a mask of the selection; a bool if it is the same for all members."""
        mine: Mask = mask[self.rows]
        return bool(mine[0]) if (mine == mine[0]).all() else self.spread(mask)


class SelectionLayout:
    """Parts of a selection; `types` and `codes` by member, `slots` ascend. Immutable, `SelectionPart.kept` apart."""

    def __init__(self, how: tuple[str, str, int], slots: Slots, codes: Cells, types: Types, ring: LevelRing) -> None:
        """how: window function, reducer, and slots of a part."""
        (self.function, self.reducer, each), self.types = how, types
        self.is_string = types == STRING
        self._is_double = types == DOUBLE
        kind = self._kinds()
        size = int(codes.max(initial=0)) + 1
        whole = codes + kind * size if kind.any() else codes
        key = whole.astype(np.uint16 if 3 * size <= 1 << 16 else np.int64)  # numpy sorts 16-bit keys in linear time
        slices = split_slots(slots, each, ring.segment)
        self.parts = [self._part(slots, rows, key, size, ring) for rows in slices]
        classes = sum(len(group.codes) for part in self.parts for group in part.groups)
        self.is_cacheable = classes <= KEPT_CLASSES and len(slots) <= KEPT_MEMBERS

    def _kinds(self) -> Cells:
        function = WINDOW_FUNCTIONS[self.function]
        takes_texts = function.strings and (self.function == "count" or self.reducer == "count")
        if function.gives == "real":
            kind = np.full(len(self.types), _REAL, np.int64)
        elif function.gives == "integer" or takes_texts:
            kind = np.zeros(len(self.types), np.int64)
        else:
            kind = self._is_double.astype(np.int64)
        return kind if takes_texts else np.where(self.is_string, _LEFT_OUT, kind)

    def _part(self, slots: Slots, rows: slice, key: npt.NDArray[Any], size: int, ring: LevelRing) -> SelectionPart:
        mine = slots[rows]
        first, wide = int(mine[0]), int(mine[-1] - mine[0]) + 1
        if wide <= DENSE_FACTOR * len(mine):
            chosen, places = ring.selection(np.arange(first, first + wide)), mine - first
        else:
            chosen, places = ring.selection(mine), np.arange(len(mine))
        order = np.argsort(key[rows], kind="stable")
        codes = key[rows].take(order).astype(np.int64)
        stop = int(np.searchsorted(codes, _LEFT_OUT * size))
        marks, last = _marks(mine - chosen.segments[0].segment * ring.segment, ring.segment)
        strangers = None
        if len(chosen.slots) > len(mine):
            strangers = np.ones(wide, np.bool_)
            strangers[places] = False
        ordered = places.take(order[:stop])
        asked = places if WINDOW_FUNCTIONS[self.function].strings else ordered
        groups = groups_of(codes[:stop], size)
        for group in groups:
            if group.double:
                group.class_of = np.full(len(chosen.slots), len(group.codes))
                group.class_of[ordered[group.rows]] = np.repeat(np.arange(len(group.codes)), group.sizes)
        part = SelectionPart(chosen, rows, places, ordered, asked, False, groups, marks, last, strangers)
        part.double = part.spread_mask(self._is_double)
        return part


def part_size(width: int, outputs: int, classes: int) -> int:
    """Return the slots of a part for `outputs` windows of `width` columns each; fewer if there are many classes."""
    most = min(PART, WINDOW_CELLS // (width + 1))
    if classes > CLASS_CELLS // outputs:
        most = min(most, CLASS_CELLS // outputs)
    return max(LEAST_PART, most) // 64 * 64


def split_slots(slots: Slots, each: int, segment: int) -> Iterator[slice]:
    """Cut ascending slots into slices within a segment: `each` slots if they are dense, else `each` members."""
    bounds = np.flatnonzero(np.diff(slots // segment)) + 1
    for start, stop in zip([0, *bounds.tolist()], [*bounds.tolist(), len(slots)], strict=True):
        if start == stop:
            continue
        mine = slots[start:stop]
        if int(mine[-1] - mine[0]) + 1 <= DENSE_FACTOR * len(mine):
            inner = (np.flatnonzero(np.diff(mine // each)) + 1 + start).tolist()
        else:
            inner = list(range(start + each, stop, each))
        for begin, end in zip([start, *inner], [*inner, stop], strict=True):
            yield slice(begin, end)


def _marks(places: Cells, segment: int) -> tuple[Words, int]:
    mask = np.zeros(-(-segment // 64) * 64, np.bool_)
    mask[places] = True
    return np.packbits(mask, bitorder="little").view(np.uint64), int(places[-1]) + 1


def groups_of(key: Cells, size: int) -> list[KindGroup]:
    """Group runs of equal keys by kind; keys (kind * size + class) ascend."""
    if not len(key):
        return []
    starts = np.concatenate(([0], np.flatnonzero(key[1:] != key[:-1]) + 1))
    sizes = np.diff(np.append(starts, len(key)))
    kinds, codes = key[starts] // size, key[starts] % size
    found = []
    for kind in (_WHOLE, _REAL):
        mine = np.flatnonzero(kinds == kind)
        if len(mine):
            begin, end = int(starts[mine[0]]), int(starts[mine[-1]] + sizes[mine[-1]])
            found.append(KindGroup(slice(begin, end), kind == _REAL, starts[mine] - begin, codes[mine], sizes[mine]))
    return found
