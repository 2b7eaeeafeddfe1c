"""Immutable compressed columns of 64-bit numbers with O(1) random access.

`encode` picks the smallest encoding: a constant; offsets of 8, 16 or 32 bits from a base; width classes, each with a
rank bitmap and an array of its members; plain 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Indexes = npt.NDArray[np.int64] | slice
"""Indexes into a column: an array, or a slice with start and stop and no step."""

Move = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Returns the same numbers in an array elsewhere."""

MASK = (1 << 64) - 1
_WIDTH_SAMPLE = 1_499
"""Bound on the sample of numbers from which widths are chosen; a bad sample costs bytes, never correctness."""
_BITMAP_BYTES: Final = 1.25 / 8
"""Bytes of a bitmap per number of the column: one bit, and a 16-bit rank per 64 numbers."""
_DECODE_ALL = 5
"""Decode the whole column if at least 1/5 of it is requested: cheaper than ranks."""


class CompressedColumn(Protocol):
    """Column of n 64-bit numbers."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ...

    def moved(self, move: Move) -> CompressedColumn:
        """Return the column with its arrays moved."""
        ...

    def take(self, where: Indexes) -> Words:
        """Return the numbers at `where`, in its order; possibly a read-only view."""
        ...

    def at(self, place: int) -> int:
        """Return one number; much faster than `take` of one index."""
        ...


def index_count(where: Indexes) -> int:
    """Number of indexes."""
    return where.stop - where.start if isinstance(where, slice) else len(where)


def index_array(where: Indexes) -> npt.NDArray[np.int64]:
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


@dataclass(frozen=True, slots=True)
class ConstantColumn:
    """Column with one number at every index."""

    value: np.uint64
    nbytes: int = 0

    def moved(self, _move: Move) -> ConstantColumn:
        return self

    def take(self, where: Indexes) -> Words:
        return np.full(index_count(where), self.value, np.uint64)

    def at(self, _place: int) -> int:
        return int(self.value)


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """Column of uncompressed 64-bit numbers."""

    values: Words

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def moved(self, move: Move) -> PlainColumn:
        return PlainColumn(move(self.values))

    def take(self, where: Indexes) -> Words:
        held: Words = self.values[where] if isinstance(where, slice) else self.values.take(where)
        return held

    def at(self, place: int) -> int:
        return self.values.item(place)


@dataclass(frozen=True, slots=True)
class OffsetColumn:
    """Column of 8-, 16- or 32-bit offsets from a base, modulo 2^64."""

    base: np.uint64
    values: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def moved(self, move: Move) -> OffsetColumn:
        return OffsetColumn(self.base, move(self.values))

    def take(self, where: Indexes) -> Words:
        values: Words = np.add(self.offsets(where), self.base, dtype=np.uint64)
        return values

    def offsets(self, where: Indexes) -> npt.NDArray[Any]:
        """Return the offsets at `where`, possibly as a view."""
        held: npt.NDArray[Any] = self.values[where] if isinstance(where, slice) else self.values.take(where)
        return held

    def at(self, place: int) -> int:
        return (int(self.values.item(place)) + int(self.base)) & MASK


class WidthClass(NamedTuple):
    """Width class: numbers with `bits` significant bits from bit `shift` on; all other bits are zero."""

    bits: int
    shift: int

    def fits(self, values: Words) -> npt.NDArray[np.bool_]:
        """Mask of the numbers that this class can hold."""
        outside = values
        if self.bits:
            outside = values << np.uint64(self.bits) if self.shift else values >> np.uint64(self.bits)
        fitting: npt.NDArray[np.bool_] = outside == 0
        return fitting


ZERO, FULL = WidthClass(0, 0), WidthClass(64, 0)
_WIDTHS = (
    ZERO,
    WidthClass(8, 0),
    WidthClass(16, 0),
    WidthClass(16, 48),
    WidthClass(32, 0),
    WidthClass(32, 32),
    WidthClass(48, 0),
    WidthClass(48, 16),
)
"""Sorted by bits. Shifted classes suit doubles with few significant bits, the others integers."""
_PARTS: dict[int, tuple[type[Any], ...]] = {
    0: (), 8: (np.uint8,), 16: (np.uint16,), 32: (np.uint32,), 48: (np.uint32, np.uint16), 64: (np.uint64,),
}  # fmt: skip


class WidthClassMembers:
    """Numbers of one width class, in column order."""

    __slots__ = ("parts", "width")

    def __init__(self, width: WidthClass, values: Words) -> None:
        self.width = width
        moved = values >> np.uint64(width.shift) if width.shift else values
        self.parts: list[npt.NDArray[Any]] = []
        for dtype in _PARTS[width.bits]:
            self.parts.append(moved.astype(dtype))
            if width.bits > 32:
                moved = moved >> np.uint64(32)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def moved(self, move: Move) -> WidthClassMembers:
        """Return the members with their arrays moved."""
        other = copy(self)
        other.parts = [move(part) for part in self.parts]
        return other

    def take(self, where: Indexes) -> Words:
        held = [part[where] if isinstance(where, slice) else part.take(where) for part in self.parts]
        values: Words = held[0].astype(np.uint64)
        if len(held) > 1:
            values |= held[1].astype(np.uint64) << np.uint64(32)
        if self.width.shift:
            values <<= np.uint64(self.width.shift)
        return values

    def at(self, rank: int) -> int:
        """Return the number with this rank; zero in the class of zeros."""
        value = 0
        for i, part in enumerate(self.parts):
            value |= int(part.item(rank)) << 32 * i
        return value << self.width.shift


class RankedMembers:
    """Members of one width class and the rank bitmap of their indexes in the column."""

    __slots__ = ("members", "ranks", "words")

    def __init__(self, mask: npt.NDArray[np.bool_], members: WidthClassMembers) -> None:
        packed = np.packbits(mask, bitorder="little")
        self.words: Words = np.zeros(-(-len(mask) // 64), np.uint64)
        self.words.view(np.uint8)[: len(packed)] = packed
        ends = np.cumsum(np.bitwise_count(self.words), dtype=np.uint32)
        self.ranks: npt.NDArray[np.uint16] = np.zeros(len(ends), np.uint16)
        self.ranks[1:] = ends[:-1]  # a column has at most 2^16 members
        self.members = members

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.ranks.nbytes + self.members.nbytes

    def moved(self, move: Move) -> RankedMembers:
        """Return the bitmap and the members with their arrays moved."""
        other = copy(self)
        other.words, other.ranks, other.members = move(self.words), move(self.ranks), self.members.moved(move)
        return other

    def mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Mask of the members in [start, stop); `start` is a multiple of 64."""
        octets = self.words.view(np.uint8)[start // 8 : -(-stop // 8)]
        return np.unpackbits(octets, count=stop - start, bitorder="little").view(np.bool_)


class WidthClassColumn:
    """Column that stores each number in the narrowest class worth its bitmap; the largest class needs no bitmap.

    Invariant: numbers that no bitmap marks are in `rest`; their rank there is their index less the ranks of the others.
    """

    __slots__ = ("marked", "n", "rest")

    def __init__(self, values: Words, widths: Sequence[WidthClass]) -> None:
        """`widths` are sorted by bits, FULL last."""
        self.n = len(values)
        masks: list[npt.NDArray[np.bool_]] = []
        free = np.ones(self.n, np.bool_)
        for width in widths[:-1]:
            masks.append(width.fits(values) & free)
            free &= ~masks[-1]
        masks.append(free)
        sizes = [int(np.count_nonzero(mask)) for mask in masks]
        most = sizes.index(max(sizes))
        self.rest = WidthClassMembers(widths[most], values[masks[most]])
        self.marked = [
            RankedMembers(mask, WidthClassMembers(width, values[mask]))
            for i, (width, mask) in enumerate(zip(widths, masks, strict=True))
            if i != most and sizes[i]
        ]

    @property
    def nbytes(self) -> int:
        return self.rest.nbytes + sum(one.nbytes for one in self.marked)

    def moved(self, move: Move) -> WidthClassColumn:
        other = copy(self)
        other.marked, other.rest = [one.moved(move) for one in self.marked], self.rest.moved(move)
        return other

    def take(self, where: Indexes) -> Words:
        if not self.marked:
            return self.rest.take(where)
        if isinstance(where, slice):
            return self._range(where.start, where.stop)
        if len(where) * _DECODE_ALL >= self.n:
            return self._range(0, self.n).take(where)
        return self._each(where)

    def at(self, place: int) -> int:
        word, bit = place >> 6, place & 63
        rest = place
        for one in self.marked:
            bits = one.words.item(word)
            rank = (bits & ((1 << bit) - 1)).bit_count() + one.ranks.item(word)
            if bits >> bit & 1:
                return one.members.at(rank)
            rest -= rank
        return self.rest.at(rest)

    def zero_in(self, mine: Words) -> bool:
        """True if all numbers that `mine` marks are zero; always False if zero is not the largest class."""
        if self.rest.parts:
            return False
        for one in self.marked:
            if one.members.parts and np.bitwise_and(one.words, mine[: len(one.words)]).any():
                return False
        return True

    def exceptions(self, start: int, stop: int) -> tuple[npt.NDArray[np.intp], Words] | None:
        """Return the indexes of nonzero numbers in [start, stop), relative to `start`, and the numbers.
        None if zero is not the largest class or `start` is not a multiple of 64."""
        first = start // 64 * 64
        if self.rest.parts or first != start:
            return None
        places, values = [np.zeros(0, np.intp)], [np.zeros(0, np.uint64)]
        for one in self.marked:
            if one.members.parts:
                rank = int(one.ranks[first // 64]) if first // 64 < len(one.ranks) else 0
                places.append(np.flatnonzero(one.mask(start, stop)))
                values.append(one.members.take(slice(rank, rank + len(places[-1]))))
        return np.concatenate(places), np.concatenate(values)

    def _range(self, start: int, stop: int) -> Words:
        first = start // 64 * 64
        out = np.zeros(stop - first, np.uint64)
        left = np.ones(stop - first, np.bool_)
        skipped = first
        for one in self.marked:
            mask = one.mask(first, stop)
            rank = int(one.ranks[first // 64]) if first // 64 < len(one.ranks) else 0
            skipped -= rank
            if one.members.parts:
                places = np.flatnonzero(mask)
                out[places] = one.members.take(slice(rank, rank + len(places)))
            left &= ~mask
        if self.rest.parts:
            places = np.flatnonzero(left)
            out[places] = self.rest.take(slice(skipped, skipped + len(places)))
        return out[start - first :]

    def _each(self, where: npt.NDArray[np.int64]) -> Words:
        word, bit = where >> 6, (where & 63).astype(np.uint64)
        below = (np.uint64(1) << bit) - np.uint64(1)
        out = np.zeros(len(where), np.uint64)
        left, rest_rank = np.ones(len(where), np.bool_), where.copy()
        for one in self.marked:
            words = one.words.take(word)
            rank = np.bitwise_count(words & below) + one.ranks.take(word).astype(np.int64)
            rest_rank -= rank
            hit = np.flatnonzero((words >> bit) & np.uint64(1))
            left[hit] = False
            if one.members.parts:
                out[hit] = one.members.take(rank.take(hit))
        if self.rest.parts:
            places = np.flatnonzero(left)
            out[places] = self.rest.take(rest_rank.take(places))
        return out


def arrays_of(column: CompressedColumn) -> list[npt.NDArray[Any]]:
    """Return the arrays of a column, in the order in which it moves them."""
    arrays = list[npt.NDArray[Any]]()

    def keep(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        arrays.append(array)
        return array

    column.moved(keep)
    return arrays


def encode(values: Words, plain: bool = False) -> CompressedColumn:
    """Encode 1 to 65,536 numbers as the smallest column; the array is not kept.

    plain: use no width classes, for a column that is read often."""
    low, high = values.min(), values.max()
    if low == high:
        return ConstantColumn(low)
    spread = int(high) - int(low)
    bits = next(bits for bits in (8, 16, 32, 64) if spread < 1 << bits)
    if not plain and len(values) >= 64:
        widths, size = _choose_widths(values[:: max(1, len(values) // _WIDTH_SAMPLE)])
        if size < bits / 8:
            return WidthClassColumn(values, widths)
    if bits == 64:
        held = values.copy()
        held.setflags(write=False)  # readers get views
        return PlainColumn(held)
    return OffsetColumn(low, (values - low).astype(_PARTS[bits][0]))


def _choose_widths(some: Words) -> tuple[list[WidthClass], float]:
    """Return the width classes to use, FULL last, and the bytes per number with them."""
    free, n = np.ones(len(some), np.bool_), len(some)
    counts: dict[WidthClass, int] = {}
    for width in _WIDTHS:
        mask = width.fits(some) & free
        counts[width] = int(np.count_nonzero(mask))
        free &= ~mask
    counts[FULL] = int(np.count_nonzero(free))
    for width in _WIDTHS:  # a class that is not worth its bitmap is merged into the next wider one
        wider = _next_wider(width, counts)
        if counts[width] * (wider.bits - width.bits) / 8 <= _BITMAP_BYTES * n:
            counts[wider] += counts.pop(width)
    size = sum(count * width.bits / 8 for width, count in counts.items()) / n
    used = sum(count > 0 for count in counts.values())
    return list(counts), size + max(0, used - 1) * _BITMAP_BYTES


def _next_wider(width: WidthClass, counts: dict[WidthClass, int]) -> WidthClass:
    """Return the narrowest class of `counts` that is wider than `width` and holds all its numbers."""
    for other in counts:
        if other.bits > width.bits and (width == ZERO or bool(other.shift) == bool(width.shift)):
            return other
    return FULL
