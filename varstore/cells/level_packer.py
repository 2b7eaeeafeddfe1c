"""Packing of the segments of one level, whose rows share masks of slots that hold doubles, and the queue for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from varstore.cells.cell_updates import Mask
from varstore.cells.open_block import OpenBlock
from varstore.cells.packed_block import PackedBlock, pack
from varstore.cells.slot_segments import SEGMENT, TypeLookup
from varstore.cells.type_rules import NO_TYPE

MOST_UNPACKED = 128
"""Limit of queued segments of a level, 1 to 2.6 MB each; or four times the segments of a row, if that is more."""
Place = tuple[int, int]
"""Bucket number and segment."""


class LevelPacker:
    """Packer of the segments of one level. Not locked: the owner's lock guards it."""

    def __init__(self, kinds: TypeLookup, plain_last: bool, segment: int = SEGMENT) -> None:
        """plain_last: encode `last` without zigzag and classes, as it is read often."""
        self.kinds, self.plain_last, self.segment = kinds, plain_last, segment
        self._doubles: dict[int, Mask] = {}  # by segment, as they were when last packed

    def types_in(self, segment: int, n: int) -> npt.NDArray[np.uint8]:
        """Return the types of the first `n` slots of a segment."""
        start = segment * self.segment
        return self.kinds.types_of(np.arange(start, start + n))

    def pack(self, segment: int, block: OpenBlock, kinds: npt.NDArray[np.uint8] | None = None) -> PackedBlock | None:
        """Pack the cells of the first slots of a segment; None if all are empty. The block is not kept."""
        if kinds is None:
            kinds = self.types_in(segment, block.n)
        return pack(block, self._doubles_in(segment, kinds), self.plain_last)

    def _doubles_in(self, segment: int, kinds: npt.NDArray[np.uint8]) -> Mask | bool:
        """Mask of the slots that hold doubles, or True or False for all. Slots without a type are empty: either fits.

        Returns the previous array while it still fits, so that rows share it."""
        doubles: Mask = kinds == ValueType.DOUBLE
        if not doubles.any():
            return False
        unused = kinds == NO_TYPE
        if (doubles | unused).all():
            return True
        held = self._doubles.get(segment)
        if held is not None and len(held) >= len(kinds) and ((held[: len(kinds)] == doubles) | unused).all():
            return held
        self._doubles[segment] = doubles
        return doubles

    @property
    def nbytes(self) -> int:
        """Bytes of the masks that rows share."""
        return sum(mask.nbytes for mask in self._doubles.values())


class Unpacked:
    """Queue of open or patched segments of closed rows, least recently written first, for packing. Not locked: the
    owner's lock guards it."""

    def __init__(self) -> None:
        self._written: dict[Place, int] = {}  # head of the level when last written, oldest first
        self.spare = 0
        """Number of segments that writes leave unpacked: see `Ring.leave_unpacked`."""

    def write(self, place: Place, head_ms: int) -> None:
        """Move a written segment to the end of the queue."""
        self._written.pop(place, None)
        self._written[place] = head_ms

    def patch(self, place: Place, head_ms: int) -> None:
        """Queue a packed segment with a large patch for packing again; a queued one keeps its position."""
        self._written.setdefault(place, head_ms)

    def forget(self, number: int, segments: Iterable[int]) -> None:
        """Remove segments that were packed, or whose row was dropped."""
        for segment in segments:
            self._written.pop((number, segment), None)

    def due(self, head_ms: int, step_ms: int, finest_ms: int, open_rows: int) -> Place | None:
        """Return a segment of a past bucket that was not written for a step of the finest level; None: none."""
        for (number, segment), written_ms in self._written.items():
            if written_ms > head_ms - finest_ms:
                return None
            if number * step_ms + open_rows * finest_ms <= head_ms:
                return number, segment
        return None

    def surplus(self, segments: int) -> int:
        """Number of segments over the limit if rows have `segments` segments; 0 or less: none."""
        return len(self._written) - max(MOST_UNPACKED, 4 * segments)

    def may_be_packed(self) -> bool:
        """True if the queue is longer than `spare`."""
        return len(self._written) > self.spare

    def oldest(self) -> Place:
        """Return the least recently written segment; the queue must not be empty."""
        return next(iter(self._written))
