"""Closed cells: every statistic compressed without loss, with random access to single cells.

Each statistic is first made small: a folded one is stored as its difference to a prediction, which is computed from
other columns as the table of statistics defines. A cell of one sample, or of one repeated value, is zero in all of
them.

| column | integers, booleans, strings | doubles |
| count  | xor with the most frequent count | the same |
| offset | above the smallest one | the same |
| last   | zigzag; bits in the finest level, where it is read most | bits |
| min    | last - min | bits xor bits of last |
| max    | max - last | bits xor bits of last |
| sum    | zigzag of sum - count * last | bits xor bits of count * last |

All arithmetic is modulo 2^64. Decoding computes the prediction for a double from the same numbers by the same
operation, so every bit is restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.kernels import kernels
from artimon.compute.sample_order import Cells
from artimon.compute.statistics import FIELDS, FOLDED, FOLDS, Statistic
from varstore.cells.cell_file import CellFile, Extent, warm
from varstore.cells.cell_updates import Counts, Mask
from varstore.cells.compressed_columns import (
    MASK,
    CompressedColumn,
    ConstantColumn,
    Indexes,
    OffsetColumn,
    WidthClassColumn,
    Words,
    arrays_of,
    encode,
    index_array,
    index_count,
)
from varstore.cells.open_block import CELL_BYTES, Columns, OpenBlock

PATCH_CELLS = 2_048
"""Limit of patched cells of a packed segment; beyond it the segment is opened again."""
_ONE = np.uint64(1)
_ZERO = ConstantColumn(np.uint64(0))
_NEEDS = {
    **{name: (name,) for name in FIELDS if name not in FOLDED},
    **{name: ("count", "last") if statistic.scaled else ("last",) for name, statistic in FOLDED.items()},
}
"""Columns without a guess that are needed to decode each field."""


def warm_blocks(blocks: Iterable[object], names: Collection[str]) -> None:
    """Read the fields `names` of those blocks that are on disk into the page cache. Raises CellsUnreadable."""
    needed = {*names, *(need for name in names for need in _NEEDS[name])}
    on_disk = (block.extents.items() for block in blocks if isinstance(block, PackedBlock))
    warm(extent for extents in on_disk for name, extent in extents if name in needed)


def zigzag(values: Cells) -> Words:
    """Map signed to unsigned numbers: 0, -1, 1, -2 … become 0, 1, 2, 3 …"""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(words: Words) -> Cells:
    """Inverse of `zigzag`."""
    return ((words >> _ONE) ^ (np.uint64(0) - (words & _ONE))).view(np.int64)


def _predict_ints(statistic: Statistic, columns: Columns) -> Cells:
    """Return last, or count * last modulo 2^64."""
    guess: Cells = columns["last"]
    return guess * columns["count"].astype(np.int64) if statistic.scaled else guess


def _predict_doubles(statistic: Statistic, columns: Columns) -> Cells:
    """Return the bits of last, or of count * last. For one sample always last: NaN * 1 may have other bits."""
    count, last = columns.get("count"), columns["last"]
    if not statistic.scaled or count is None:
        return last
    with np.errstate(all="ignore"):
        guess = (count * last.view(np.float64)).view(np.int64)
    return np.where(count == 1, last, guess)


def _encode_ints(statistic: Statistic, value: Cells, guess: Cells) -> Words:
    if not statistic.sign:
        return zigzag(value - guess)
    return (value - guess if statistic.sign > 0 else guess - value).view(np.uint64)


def _decode_ints(statistic: Statistic, words: Words, guess: Cells) -> Cells:
    """Inverse of `_encode_ints`."""
    if not statistic.sign:
        return guess + unzigzag(words)
    return guess + words.view(np.int64) if statistic.sign > 0 else guess - words.view(np.int64)


def _signed(word: int) -> int:
    """Reduce modulo 2^64 to the range of int64."""
    word &= MASK
    return word - (1 << 64) if word >> 63 else word


class NeedsBatchRead(Exception):
    """The cell must be read with `cells`, not alone."""


class Patch:
    """Cells of a packed segment that changed after packing, sorted by place."""

    __slots__ = ("at", "columns")

    def __init__(self) -> None:
        self.at: Cells = np.zeros(0, np.int64)
        self.columns: dict[str, npt.NDArray[Any]] = {name: np.zeros(0, dtype) for name, dtype in FIELDS.items()}

    def put(self, at: Cells, columns: Columns) -> None:
        """Add or replace cells; `at` is distinct."""
        joined = np.concatenate((at, self.at))
        self.at, first = np.unique(joined, return_index=True)  # of two the first: the new one
        for name, held in self.columns.items():
            self.columns[name] = np.concatenate((columns[name].astype(held.dtype), held)).take(first)

    def apply(self, where: Cells, out: dict[str, npt.NDArray[Any]]) -> None:
        """Overwrite the changed cells in `out`, columns of the cells at `where`."""
        found = np.minimum(np.searchsorted(self.at, where), len(self.at) - 1)
        hit = np.flatnonzero(self.at.take(found) == where)
        if len(hit):
            found = found.take(hit)
            for name, column in out.items():
                column[hit] = self.columns[name].take(found)


class PackingParameters(NamedTuple):
    """Parameters for decoding the columns."""

    n: int
    mode: int
    """Most frequent count; counts are stored xor this."""
    offset_base: int
    plain_last: bool
    single: bool
    """True if no cell holds more than one sample."""


class MovedColumns(NamedTuple):
    """Columns of a block in a file, and their places there."""

    columns: dict[str, CompressedColumn]
    extents: Mapping[str, Extent]


class PackedBlock:
    """Packed cells of one segment of one row. Places from `n` on are empty unless patched.

    Immutable except for `patch`, and for the place of its columns: memory or a file."""

    __slots__ = ("columns", "doubles", "extents", "n", "patch", "shape")

    def __init__(self, shape: PackingParameters, columns: dict[str, CompressedColumn], doubles: Mask | bool) -> None:
        self.shape, self.n, self.columns, self.doubles = shape, shape.n, columns, doubles
        self.patch: Patch | None = None
        self.extents: Mapping[str, Extent] = {}
        """Places of the columns that are in a file."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory except the mask of doubles, which rows share."""
        patch = self.patched * (CELL_BYTES + 8)
        return sum(column.nbytes for name, column in self.columns.items() if name not in self.extents) + patch

    def write(self, file: CellFile, level: int) -> MovedColumns:
        """Write the columns to a file; `place` them there once it is synchronized. Raises OSError."""
        columns, extents = dict(self.columns), dict[str, Extent]()
        for name, column in self.columns.items():
            arrays = arrays_of(column)
            if arrays:
                copies, extents[name] = file.append(level, arrays)
                columns[name] = column.moved(partial(_next_of, iter(copies)))
        return MovedColumns(columns, extents)

    def place(self, moved: MovedColumns) -> None:
        """Use the columns in the file. Needs no lock: a reader may use either."""
        self.columns, self.extents = moved

    def counts(self, where: Indexes) -> Counts:
        """Return the sample counts of these cells."""
        counts: Counts = self.cells(where, ("count",))["count"]
        return counts

    def frozen(self) -> PackedBlock | None:
        """Return an immutable view of the same cells; None if some are patched."""
        if self.patch is not None:
            return None
        view = PackedBlock(self.shape, self.columns, self.doubles)
        view.extents = self.extents
        return view

    def is_single(self, mine: Words, stop: int) -> bool:
        """Quick test that all cells marked by `mine`, all before `stop`, hold one sample; False if it cannot tell.
        Bit i % 64 of word i // 64 of `mine` marks place i."""
        if self.patch is not None or not self.shape.single or stop > self.n:
            return False
        column = self.columns["count"]
        if isinstance(column, ConstantColumn):
            return int(column.value) ^ self.shape.mode == 1
        return self.shape.mode == 1 and isinstance(column, WidthClassColumn) and column.zero_in(mine)

    def cells(self, where: Indexes, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Return the fields `names` of these cells; folded ones of one sample equal it. Undefined where count is 0.

        Arrays may be views and must not be written to."""
        last_place = where.stop - 1 if isinstance(where, slice) else int(where.max(initial=-1))
        if last_place >= self.n:
            return self._beyond(where, names)
        out = self._decode(where, names)
        if self.patch is not None:
            places = index_array(where)
            out = {name: column.copy() for name, column in out.items()}  # some are views, some share one array
            self.patch.apply(places, out)
        return out

    def cell(self, place: int, names: Sequence[str]) -> tuple[int, ...] | None:
        """Return the fields `names` of one cell, in that order; None if the cell is empty.

        Raises NeedsBatchRead if it must be read with `cells`."""
        if self.patch is not None:
            raise NeedsBatchRead
        if place >= self.n:
            return None
        count = self.columns["count"].at(place) ^ self.shape.mode
        if not count:
            return None
        double = self.doubles if isinstance(self.doubles, bool) else bool(self.doubles[place])
        last = self.columns["last"].at(place)
        last = _signed(last) if double or self.shape.plain_last else last >> 1 ^ -(last & 1)
        known = {"count": count, "last": last}
        if "offset" in names:
            known["offset"] = self.columns["offset"].at(place) + self.shape.offset_base
        return tuple(
            [known[name] if name in known else self._folded_cell(name, place, count, last, double) for name in names]
        )

    def _folded_cell(self, name: str, place: int, count: int, last: int, double: bool) -> int:
        """Return a folded statistic of a cell."""
        if self.shape.single or count == 1:
            return last
        raw, statistic = self.columns[name].at(place), FOLDED[name]
        if double:
            if statistic.scaled:
                raise NeedsBatchRead  # the guess is computed with doubles
            return _signed(last & MASK ^ raw)
        guess = count * last if statistic.scaled else last
        return _signed(guess + (statistic.sign * raw if statistic.sign else raw >> 1 ^ -(raw & 1)))

    def _beyond(self, where: Indexes, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        places = index_array(where)
        inside = np.flatnonzero(places < self.n)
        out: dict[str, npt.NDArray[Any]] = {name: np.zeros(len(places), FIELDS[name]) for name in names}
        for name, column in self._decode(places.take(inside), names).items():
            out[name][inside] = column
        if self.patch is not None:
            self.patch.apply(places, out)
        return out

    def _decode(self, where: Indexes, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        if self.shape.single:  # then all folded statistics equal `last`
            columns = self._decode_first(where, {"last" if name in FOLDS else name for name in names})
            return {name: columns["last" if name in FOLDS else name] for name in names}
        columns = self._decode_first(where, {need for name in names for need in _NEEDS[name]})
        folded = [FOLDED[name] for name in names if name in FOLDED]
        doubles = self._doubles_of(where) if folded else False
        for statistic in folded:
            columns[statistic.name] = self._decode_folded(statistic, columns, where, doubles)
        return {name: columns[name] for name in names}

    def _decode_folded(self, statistic: Statistic, columns: Columns, where: Indexes, doubles: Mask | bool) -> Cells:
        column = self.columns[statistic.field]
        if column is _ZERO and not statistic.scaled:
            return columns["last"]
        raw = column.take(where)
        cells: Cells = _select_by_type(
            doubles,
            lambda: _decode_ints(statistic, raw, _predict_ints(statistic, columns)),
            lambda: raw.view(np.int64) ^ _predict_doubles(statistic, columns),
        )
        return cells

    def _doubles_of(self, where: Indexes) -> Mask | bool:
        return self.doubles if isinstance(self.doubles, bool) else self.doubles[where]

    def _decode_first(self, where: Indexes, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Decode those of `names` that need no guess: count, offset, last."""
        columns: dict[str, npt.NDArray[Any]] = {}
        if "count" in names:
            columns["count"] = self._counts(where)
        if "offset" in names:
            columns["offset"] = self._offsets(where)
        if "last" in names:
            last = self.columns["last"].take(where)
            doubles = True if self.shape.plain_last else self._doubles_of(where)
            columns["last"] = _select_by_type(doubles, lambda: unzigzag(last), lambda: last.view(np.int64))
        return columns

    def _offsets(self, where: Indexes) -> npt.NDArray[np.uint32]:
        """Decode offsets; if all are equal, as a broadcast array with stride 0."""
        column, base = self.columns["offset"], self.shape.offset_base
        if isinstance(column, ConstantColumn):
            return np.broadcast_to(np.uint32(int(column.value) + base), (index_count(where),))
        if isinstance(column, OffsetColumn):
            offsets: npt.NDArray[np.uint32] = np.add(column.offsets(where), int(column.base) + base, dtype=np.uint32)
            return offsets
        return (column.take(where) + np.uint64(base)).astype(np.uint32)

    def _counts(self, where: Indexes) -> Counts:
        """Decode counts; if all are equal, as a broadcast array with stride 0."""
        column = self.columns["count"]
        if isinstance(column, ConstantColumn):
            return np.broadcast_to(np.uint32(int(column.value) ^ self.shape.mode), (index_count(where),))
        sparse = (
            column.exceptions(where.start, where.stop)
            if isinstance(column, WidthClassColumn) and isinstance(where, slice)
            else None
        )
        if sparse is not None:
            places, values = sparse
            counts = np.full(index_count(where), self.shape.mode, np.uint32)
            counts[places] = (values ^ np.uint64(self.shape.mode)).astype(np.uint32)
            return counts
        return (column.take(where) ^ np.uint64(self.shape.mode)).astype(np.uint32)

    def copy(self, where: Indexes) -> dict[str, npt.NDArray[Any]]:
        """Return writable copies of all FIELDS of these cells."""
        return {name: column.copy() for name, column in self.cells(where, tuple(FIELDS)).items()}

    @property
    def patched(self) -> int:
        """Number of cells that changed after packing."""
        return 0 if self.patch is None else len(self.patch.at)

    def overwrite(self, where: Indexes, columns: Columns) -> bool:
        """Overwrite distinct cells; `columns` has all of FIELDS. False without effect if the patch would be too big."""
        where = index_array(where)
        patch = self.patch or Patch()
        if len(patch.at) + len(where) > PATCH_CELLS:
            return False
        one = columns["count"] <= 1
        whole = {name: np.where(one, columns["last"], columns[name]) for name in FOLDS}
        patch.put(where, {**columns, **whole})
        self.patch = patch
        return True

    def to_open_block(self, n: int) -> OpenBlock:
        """Return the same cells in an open block of n."""
        block = OpenBlock.reserve(n)
        stop = self.n if self.patch is None or not len(self.patch.at) else max(self.n, int(self.patch.at[-1]) + 1)
        block.overwrite(slice(0, stop), self.cells(slice(0, stop), tuple(FIELDS)))
        return block


def _next_of(copies: Iterator[npt.NDArray[Any]], _: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return next(copies)


def _select_by_type(doubles: Mask | bool, ints: Any, floats: Any) -> Any:
    """Select `floats()` where `doubles` and `ints()` elsewhere; call only those that are needed."""
    if doubles is True:
        return floats()
    if doubles is False:
        return ints()
    return np.where(doubles, floats(), ints())


def pack(block: OpenBlock, doubles: Mask | bool, plain_last: bool) -> PackedBlock | None:
    """Pack the cells of a block; None if all are empty. The block is not kept.

    doubles: mask of the cells that hold doubles. plain_last: encode `last` without classes, as it is read often."""
    n = block.n
    everything = slice(0, n)
    count = block.count
    low, high = int(count.min()), int(count.max())
    if high == 0:
        return None
    mode = high if low == high else int(np.bincount(np.minimum(count, 65_536)).argmax())
    held = block.cells(everything, ("last", "offset", *FOLDS) if block.has_folded else ("last", "offset"))
    last, offset = held["last"], held["offset"]
    if low == 0:
        empty = count == 0
        last = np.where(empty, 0, last)
        base = int(offset[~empty].min())
        offset = np.where(empty, base, offset)
    else:
        base = int(offset.min())
    folded = block.has_folded and high > 1
    words = _differences(block, doubles) if folded and not plain_last else None
    columns: dict[str, CompressedColumn] = {
        "count": encode(count.astype(np.uint64) ^ np.uint64(mode)) if low < high else _ZERO,
        "offset": encode((offset - np.uint32(base)).astype(np.uint64)),
        **dict.fromkeys(FOLDS, _ZERO),
    }
    if words is not None:
        columns |= {name: _encode_folded(column) for name, column in zip(FOLDS, words[1:], strict=True)}
        columns["last"] = encode(words[0])
    else:
        columns["last"] = encode(
            _select_by_type(True if plain_last else doubles, lambda: zigzag(last), lambda: last.view(np.uint64)),
            plain_last,
        )
        if folded:
            columns |= _pack_folded({**held, "count": count, "last": last}, doubles)
    return PackedBlock(PackingParameters(n, mode, base, plain_last, high == 1), columns, doubles)


def _pack_folded(held: Columns, doubles: Mask | bool) -> dict[str, CompressedColumn]:
    """Encode the folded statistics."""
    small = held["count"] <= 1
    fewer = bool(small.any())
    columns: dict[str, CompressedColumn] = {}
    for name, statistic in FOLDED.items():
        words = _encode_statistic(statistic, held, doubles)
        columns[name] = _encode_folded(np.where(small, np.uint64(0), words) if fewer else words)
    return columns


def _encode_folded(words: Words) -> CompressedColumn:
    column = encode(words)
    return _ZERO if isinstance(column, ConstantColumn) and not column.value else column


def _differences(block: OpenBlock, doubles: Mask | bool) -> list[Words] | None:
    """Return the words of last, min, max and sum by the compiled form of `_encode_statistic`; None without it."""
    compiled = kernels()
    mask = np.full(block.n, doubles) if isinstance(doubles, bool) else doubles[: block.n]
    return None if compiled is None else compiled.differences(block.in_order(), mask)


def _encode_statistic(statistic: Statistic, held: Columns, doubles: Mask | bool) -> Words:
    value = held[statistic.name]
    words: Words = _select_by_type(
        doubles,
        lambda: _encode_ints(statistic, value, _predict_ints(statistic, held)),
        lambda: (value ^ _predict_doubles(statistic, held)).view(np.uint64),
    )
    return words
