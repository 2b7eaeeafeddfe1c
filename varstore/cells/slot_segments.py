"""Components of a level: rows, their segments, and slots grouped by segment."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells, TypeBounds
from varstore.cells.cell_updates import Mask
from varstore.cells.compressed_columns import Indexes
from varstore.cells.open_block import OpenBlock
from varstore.cells.packed_block import PackedBlock

SEGMENT = 65_536
"""Slots that are packed together; ranks in a segment fit in 16 bits."""


class TypeLookup(Protocol):
    """Lookup of the types of series by slot."""

    def types_of(self, slots: Cells) -> npt.NDArray[np.uint8]:
        """Return (n,) type codes."""
        ...


class LevelSamples(NamedTuple):
    """Samples for one level, ordered by class of type; read-only arrays of length n."""

    slots: Cells
    time_ms: Cells
    cells: Cells
    bounds: TypeBounds
    distinct: bool
    """True if no slot occurs twice."""

    def pick(self, keep: Mask) -> LevelSamples:
        """Select the samples of `keep`."""
        bounds = self.bounds.select(keep)
        return LevelSamples(self.slots[keep], self.time_ms[keep], self.cells[keep], bounds, self.distinct)


@dataclass(slots=True)
class BucketRow:
    """Row of a level: one bucket of every series.

    Invariant: cells of slots from `open_from` on are in `open` if there is one, all others in segments. Cells in
    `open` have not been added to coarser levels; cells in segments have."""

    number: int
    open: OpenBlock | None = None
    open_from: int = 0
    """First slot of the open part, a multiple of the segment size. `open` is empty before it."""
    segments: dict[int, OpenBlock | PackedBlock] = field(default_factory=dict)
    """Closed segments by number; missing ones are empty."""
    changed: int = 0
    """Number of the last change to the row."""

    def block(self, segment: int, size: int) -> OpenBlock | PackedBlock | None:
        """Return the cells of a segment for reading; None if all are empty."""
        start = segment * size
        if self.open is not None and start >= self.open_from:
            return self.open.view(start, min(start + size, self.open.n))
        return self.segments.get(segment)


class SegmentSlots(NamedTuple):
    """Chosen slots of one segment: their places in the segment, and in the list they were chosen from."""

    segment: int
    places: Indexes
    rows: Indexes


def group_by_segment(slots: Cells, size: int = SEGMENT) -> list[SegmentSlots]:
    """Group the slots by segment; fastest if they ascend. Consecutive places become slices."""
    if not len(slots):
        return []
    segments = slots // size
    order: Cells | None = None
    if (segments[1:] < segments[:-1]).any():
        order = np.argsort(segments, kind="stable")
        slots, segments = slots[order], segments[order]
    cuts = [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), len(slots)]
    found = []
    for start, stop in pairwise(cuts):
        inside = slots[start:stop] - segments[start] * size
        out: Indexes = slice(start, stop) if order is None else order[start:stop]
        found.append(SegmentSlots(int(segments[start]), _as_slice(inside), out))
    return found


def _as_slice(places: Cells) -> Indexes:
    """Return a slice if the places are consecutive."""
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and (len(places) == 1 or bool((np.diff(places) == 1).all())):
        return slice(first, last + 1)
    return places


class SlotSelection:
    """Slots to read in many rows, grouped by segment once."""

    __slots__ = ("segments", "slots")

    def __init__(self, slots: Cells, size: int = SEGMENT) -> None:
        self.slots, self.segments = slots, group_by_segment(slots, size)
