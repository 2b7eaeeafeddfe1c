"""Packing of the segments of one level; rows share the masks of slots that hold doubles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from varstore.cells.addends import Mask
from varstore.cells.dense import Dense
from varstore.cells.packed import Packed, pack
from varstore.cells.segments import SEGMENT, Kinds
from varstore.cells.typing_rules import NO_TYPE


class Packer:
    """Packer of the segments of one level. Not locked: the owner's lock guards it."""

    def __init__(self, kinds: Kinds, plain_last: bool, segment: int = SEGMENT) -> None:
        """plain_last: encode `last` without zigzag and classes, as it is read often."""
        self.kinds, self.plain_last, self.segment = kinds, plain_last, segment
        self._doubles: dict[int, Mask] = {}  # by segment, as they were when last packed

    def kinds_in(self, segment: int, n: int) -> npt.NDArray[np.uint8]:
        """Return the types of the first `n` slots of a segment."""
        start = segment * self.segment
        return self.kinds.of(np.arange(start, start + n))

    def pack(self, segment: int, block: Dense, kinds: npt.NDArray[np.uint8] | None = None) -> Packed | None:
        """Pack the cells of the first slots of a segment; None if all are empty. The block is not kept."""
        if kinds is None:
            kinds = self.kinds_in(segment, block.n)
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
