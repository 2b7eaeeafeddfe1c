"""One bucket of one part, captured under the lock of the store and read without it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Ints
from artimon.compute.rolling_windows import Counts, MaskOrBool
from artimon.compute.statistics import FIELD_OF, FOLDS, with_needs
from artimon.compute.true_sums import may_wrap
from varstore.cells.level_ring import LevelRing
from varstore.cells.packed_block import PackedBlock, warm_blocks
from varstore.query.selection_parts import SelectionPart

FieldCopies = Mapping[str, npt.NDArray[Any]]


class MayWrap(Exception):
    """A sum of integers may exceed 64 bits."""


class CapturedBucket(NamedTuple):
    """Captured bucket of a part: immutable packed cells, or copies of fields; source None: empty."""

    number: int
    version: int
    source: PackedBlock | FieldCopies | None

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return sum(array.nbytes for array in self.source.values()) if isinstance(self.source, Mapping) else 0


class ReadFields(NamedTuple):
    """Statistics that a window function reads of each bucket."""

    names: frozenset[str]
    """Statistics read for all series."""
    rare_names: frozenset[str]
    """Statistics read for few series only."""

    @classmethod
    def of(cls, statistics: Collection[str]) -> ReadFields:
        """Make it from the `statistics` of a window function."""
        names = frozenset(statistics) | {"count"}
        rarely = {"min"} if "last_time" in names else with_needs(names) - names
        return cls(names - rarely, frozenset(rarely))

    @property
    def fields(self) -> set[str]:
        """Names of all these statistics as FIELDS of a ring."""
        return {FIELD_OF[name] for name in self.names | self.rare_names}

    def capture(self, ring: LevelRing, number: int, part: SelectionPart) -> CapturedBucket:
        """Capture a bucket of a part. Call with the owner's lock held."""
        return CapturedBucket(number, ring.version(number), ring.capture_row(number, part.selection, self.fields))


def warm_captured(captured: Iterable[object], reading: ReadFields) -> None:
    """Read what captured buckets have on disk into the page cache. Call without the lock. Raises CellsUnreadable."""
    warm_blocks((one.source for one in captured if isinstance(one, CapturedBucket)), reading.fields)


class SelectionColumn:
    """`Column` (artimon/compute/rolling_windows.py) of all slots read of a part."""

    def __init__(self, captured: CapturedBucket, part: SelectionPart, left_ms: int) -> None:
        self._source, self._part, self._left_ms = captured.source, part, np.int64(left_ms)
        self._read: dict[str, npt.NDArray[Any]] = {}
        self.present: MaskOrBool = True
        self.count: Counts | None = None
        self._single = isinstance(self._source, PackedBlock) and self._source.is_single(part.marks, part.stop)
        if not self._single:
            self._count()

    def _count(self) -> None:
        part, count = self._part, self._field("count")
        if int(count.max(initial=0)) > 1:
            self.count = count
        present = count > 0
        if not (present if part.not_members is None else present | part.not_members).all():
            self.present = present

    def _field(self, name: str) -> npt.NDArray[Any]:
        found = self._read.get(name)
        if found is None:
            if isinstance(self._source, PackedBlock):
                self._read |= self._source.cells(self._part.inside, (name,))
            elif self._source is not None:
                self._read[name] = self._source[name]
            found = self._read[name]
        return found

    def cells(self, statistic: str) -> Ints:
        """Return (slots read,) cells of a statistic."""
        if statistic == "last_time":
            time = self._read.get(statistic)
            if time is None:
                offset = self._field(FIELD_OF[statistic])
                if len(offset) and not offset.strides[0]:
                    time = np.broadcast_to(offset[0] + self._left_ms, offset.shape)
                else:
                    time = offset + self._left_ms
                self._read[statistic] = time
            return time
        packed = isinstance(self._source, PackedBlock)
        return self._field("last" if packed and self.count is None and statistic in FOLDS else statistic)

    def check_sums(self) -> None:
        """Raise MayWrap if a sum of integers may exceed 64 bits."""
        count, double = self.count, self._part.double
        if count is None or double is True:
            return
        several = count > 1
        if not isinstance(double, bool):
            several &= ~double
        if self._part.not_members is not None:
            several &= ~self._part.not_members
        rows = np.flatnonzero(several)
        if may_wrap(count[rows], self.cells("min")[rows], self.cells("max")[rows]).any():
            raise MayWrap("a sum may exceed 64 bits")
