"""Arrays of 64-bit numbers that never change again, stored as narrow as they are, any of them read in O(1).

`encode` picks the smallest of: one number for all; an offset of 8, 16 or 32 bits from a base; classes of widths, each a
bitmap with ranks and an array of its members; plain 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Where = npt.NDArray[np.int64] | slice
"""Places in a column: numbers, or a slice with start and stop and no step."""

MASK = (1 << 64) - 1
_LOOKED_AT = 1_499
"""Members that are looked at to choose widths: a wrong guess costs bytes, never a value."""
_BITMAP_BYTES: Final = 1.25 / 8
"""Of a bitmap, each member of the column: one bit, and 16 of a rank for 64 of them."""
_DECODE_ALL = 5
"""Of one in so many members and more, everything is decoded: cheaper than ranks."""


class Column(Protocol):
    """n numbers of 64 bits."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ...

    def take(self, where: Where) -> Words:
        """The numbers there, in order; perhaps a view that must not be written to."""
        ...

    def at(self, place: int) -> int:
        """One number: much quicker than `take` of one place."""
        ...


def size_of(where: Where) -> int:
    """How many places."""
    return where.stop - where.start if isinstance(where, slice) else len(where)


def places_of(where: Where) -> npt.NDArray[np.int64]:
    """The places as numbers."""
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


@dataclass(frozen=True, slots=True)
class Constant:
    """The same number everywhere."""

    value: np.uint64
    nbytes: int = 0

    def take(self, where: Where) -> Words:
        return np.full(size_of(where), self.value, np.uint64)

    def at(self, _place: int) -> int:
        return int(self.value)


@dataclass(frozen=True, slots=True)
class Plain:
    """All 64 bits of each."""

    values: Words

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def take(self, where: Where) -> Words:
        held: Words = self.values[where] if isinstance(where, slice) else self.values.take(where)
        return held

    def at(self, place: int) -> int:
        return self.values.item(place)


@dataclass(frozen=True, slots=True)
class Narrow:
    """8, 16 or 32 bits above a base, modulo 2^64."""

    base: np.uint64
    values: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def take(self, where: Where) -> Words:
        held = self.values[where] if isinstance(where, slice) else self.values.take(where)
        values: Words = np.add(held, self.base, dtype=np.uint64)
        return values

    def at(self, place: int) -> int:
        return (int(self.values.item(place)) + int(self.base)) & MASK


class Width(NamedTuple):
    """A class of numbers: `bits` of them matter, beginning at bit `shift`; the others are zero."""

    bits: int
    shift: int

    def fits(self, values: Words) -> npt.NDArray[np.bool_]:
        """Which of them this class can hold."""
        outside = values
        if self.bits:
            outside = values << np.uint64(self.bits) if self.shift else values >> np.uint64(self.bits)
        fitting: npt.NDArray[np.bool_] = outside == 0
        return fitting


ZERO, FULL = Width(0, 0), Width(64, 0)
_WIDTHS = (ZERO, Width(8, 0), Width(16, 0), Width(16, 48), Width(32, 0), Width(32, 32), Width(48, 0), Width(48, 16))
"""By bits. High ones suit doubles with few significant bits, low ones integers."""
_PARTS: dict[int, tuple[type[Any], ...]] = {
    0: (), 8: (np.uint8,), 16: (np.uint16,), 32: (np.uint32,), 48: (np.uint32, np.uint16), 64: (np.uint64,),
}  # fmt: skip


class Members:
    """The numbers of one class, in order."""

    __slots__ = ("parts", "width")

    def __init__(self, width: Width, values: Words) -> None:
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

    def take(self, where: Where) -> Words:
        held = [part[where] if isinstance(where, slice) else part.take(where) for part in self.parts]
        values: Words = held[0].astype(np.uint64)
        if len(held) > 1:
            values |= held[1].astype(np.uint64) << np.uint64(32)
        if self.width.shift:
            values <<= np.uint64(self.width.shift)
        return values

    def at(self, rank: int) -> int:
        """One of them; zero where all are."""
        value = 0
        for i, part in enumerate(self.parts):
            value |= int(part.item(rank)) << 32 * i
        return value << self.width.shift


class Marked:
    """The members of one class, and the bitmap that says where they are."""

    __slots__ = ("members", "ranks", "words")

    def __init__(self, mask: npt.NDArray[np.bool_], members: Members) -> None:
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

    def mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Which of [start, stop) are members; `start` is a multiple of 64."""
        octets = self.words.view(np.uint8)[start // 8 : -(-stop // 8)]
        return np.unpackbits(octets, count=stop - start, bitorder="little").view(np.bool_)


class Classes:
    """Each number in the narrowest class that is worth its bitmap; the most numerous class needs none.

    Invariant: a number that no bitmap marks is in `rest`, and its rank there is its place less the ranks of all others.
    """

    __slots__ = ("marked", "n", "rest")

    def __init__(self, values: Words, widths: Sequence[Width]) -> None:
        """`widths` by bits, FULL last."""
        self.n = len(values)
        masks: list[npt.NDArray[np.bool_]] = []
        free = np.ones(self.n, np.bool_)
        for width in widths[:-1]:
            masks.append(width.fits(values) & free)
            free &= ~masks[-1]
        masks.append(free)
        sizes = [int(np.count_nonzero(mask)) for mask in masks]
        most = sizes.index(max(sizes))
        self.rest = Members(widths[most], values[masks[most]])
        self.marked = [
            Marked(mask, Members(width, values[mask]))
            for i, (width, mask) in enumerate(zip(widths, masks, strict=True))
            if i != most and sizes[i]
        ]

    @property
    def nbytes(self) -> int:
        return self.rest.nbytes + sum(one.nbytes for one in self.marked)

    def take(self, where: Where) -> Words:
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
        """Whether all numbers that `mine` marks are zero; False where zero is not the rule."""
        if self.rest.parts:
            return False
        for one in self.marked:
            if one.members.parts and np.bitwise_and(one.words, mine[: len(one.words)]).any():
                return False
        return True

    def exceptions(self, start: int, stop: int) -> tuple[npt.NDArray[np.intp], Words] | None:
        """Places in [start, stop) that are not zero, counted from `start`, and what is there; None where zero is not
        the rule."""
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


def encode(values: Words, plain: bool = False) -> Column:
    """The smallest column of these numbers, of which there are 1 to 65,536; the array is not kept.

    plain: no classes, because this column is read often."""
    low, high = values.min(), values.max()
    if low == high:
        return Constant(low)
    spread = int(high) - int(low)
    bits = next(bits for bits in (8, 16, 32, 64) if spread < 1 << bits)
    if not plain and len(values) >= 64:
        widths, size = _choose(values[:: max(1, len(values) // _LOOKED_AT)])
        if size < bits / 8:
            return Classes(values, widths)
    if bits == 64:
        held = values.copy()
        held.setflags(write=False)  # readers get views
        return Plain(held)
    return Narrow(low, (values - low).astype(_PARTS[bits][0]))


def _choose(some: Words) -> tuple[list[Width], float]:
    """The classes to use, FULL last, and the bytes a number takes with them."""
    free, n = np.ones(len(some), np.bool_), len(some)
    counts: dict[Width, int] = {}
    for width in _WIDTHS:
        mask = width.fits(some) & free
        counts[width] = int(np.count_nonzero(mask))
        free &= ~mask
    counts[FULL] = int(np.count_nonzero(free))
    for width in _WIDTHS:  # a class that does not earn its bitmap goes into the next wider one that holds it
        wider = _next_wider(width, counts)
        if counts[width] * (wider.bits - width.bits) / 8 <= _BITMAP_BYTES * n:
            counts[wider] += counts.pop(width)
    size = sum(count * width.bits / 8 for width, count in counts.items()) / n
    used = sum(count > 0 for count in counts.values())
    return list(counts), size + max(0, used - 1) * _BITMAP_BYTES


def _next_wider(width: Width, counts: dict[Width, int]) -> Width:
    """The narrowest of `counts` that holds whatever `width` does, and more."""
    for other in counts:
        if other.bits > width.bits and (width == ZERO or bool(other.shift) == bool(width.shift)):
            return other
    return FULL
