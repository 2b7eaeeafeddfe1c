"""Compiled hot loops of the shards, the history, imports and answers: kernels.c, built once by the C compiler of the
machine and called by ctypes.

`kernels()` is None without a compiler, or if the folder of compiled files (`__pycache__`) is read-only and has no
library. Callers then use their forms in numpy, which give the same bits. Arrays must be contiguous and of the types in
the annotations.

python -m artimon.compute.kernels builds the library ahead, as ./scripts/setup does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Floats, Ints
from artimon.model.values import ValueType
from artimon.runtime.compiled_library import ADDRESS as _ADDRESS
from artimon.runtime.compiled_library import INT as _INT
from artimon.runtime.compiled_library import NOT_AVAILABLE, build_library, folder_of
from artimon.runtime.compiled_library import address as _address
from artimon.runtime.compiled_library import typed as _function

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
SOURCE = Path(__file__).with_suffix(".c")
FOLDER = folder_of(SOURCE)


class _PlainRun(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("n", "string_code", "after_ms", "until_ms", "silent_ms")),
        *((name, _ADDRESS) for name in ("slots", "time_ms", "birth_ms", "cell", "type", "type_up", "has_samples")),
        *((name, _ADDRESS) for name in ("birth", "last_time", "last", "count", "offset", "row_last")),
    )


class _Block(ctypes.Structure):
    _fields_ = (*((name, _ADDRESS) for name in ("count", "offset", "last", "min", "max", "sum")),)


class _Rollups(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("n", "start_ms", "step_ms", "columns", "width")),
        *((name, _ADDRESS) for name in ("series", "end", "birth", "first", "last_time", "count", "last")),
        *((name, _ADDRESS) for name in ("min", "max", "sum", "type")),
    )


class _Packing(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("n", "base")),
        *((name, _ADDRESS) for name in ("source", "series", "end", "birth", "first", "last_time", "count", "cell")),
        *((name, _ADDRESS) for name in ("type", "rows", "run_source", "run_series", "run_birth", "begin", "run_type")),
    )


class _RollupBlock(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("n", "start_ms", "step_ms", "columns", "width", "after_ms", "until_ms", "base_ms")),
        *((name, _ADDRESS) for name in ("run", "series", "begin", "birth", "type", "rows", "min", "max", "sum")),
        ("merged", _INT),
    )


class BlockRows(NamedTuple):
    """Rows of some runs of a block of roll-ups.

    chosen: number and series of each run. block: first row of each run, and the number of all rows; start time and type
    of each run, rows (PACKED); min, max and sum of each row or None. grid: start, step and number of columns. times:
    the rows whose end is later than the first and not later than the second are meant; the base of the block."""

    chosen: tuple[Ints, Ints]
    block: tuple[npt.NDArray[Any] | None, ...]
    grid: tuple[int, int, int]
    times: tuple[int, int, int]

    def part(self, runs: slice) -> BlockRows:
        """Return the rows of some of the runs."""
        run, series = self.chosen
        return self._replace(chosen=(run[runs], series[runs]))

    def struct(self, width: int) -> _RollupBlock:
        """Return it for matrices of `width` series."""
        addresses = (None if one is None else _address(one) for one in (*self.chosen, *self.block))
        return _RollupBlock(len(self.chosen[0]), *self.grid, width, *self.times, *addresses)


class _Matrix(ctypes.Structure):
    _fields_ = (*((name, _ADDRESS) for name in ("count", "last", "last_time", "min", "max", "sum")),)


class _Lives(ctypes.Structure):
    _fields_ = (
        *((name, _ADDRESS) for name in ("type", "newest", "place", "begun")),
        *((name, _ADDRESS) for name in ("birth_ms", "first_ms", "last_ms", "last", "others", "ended")),
    )


class _Points(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("n", "columns", "size")),
        ("numbers", ctypes.c_char_p),
        ("here", _ADDRESS),
        *((name, ctypes.c_char_p) for name in ("times", "heads", "tail")),
        *((name, _ADDRESS) for name in ("time_ends", "head_ends")),
        ("tail_size", _INT),
    )


PACKED = np.dtype([*((name, np.uint32) for name in ("end", "first", "last", "count")), ("cell", np.int64)])
"""Row of a block of roll-ups: end of its bucket in seconds after the base of the block, time of the first and of the
last sample in milliseconds before this end, number of samples, last value."""


def _matrix_and_lives(matrices: Sequence[Ints | None], lives: Sequence[npt.NDArray[Any]]) -> tuple[_Matrix, _Lives]:
    return _Matrix(*(None if one is None else _address(one) for one in matrices)), _Lives(*map(_address, lives))


class Kernels:
    """Functions of the library. They release the interpreter's lock."""

    def __init__(self, path: Path) -> None:
        """Raise OSError unless the file is a library for this machine."""
        library = ctypes.CDLL(str(path))
        self._mark_slots = _function(library.mark_slots, ctypes.c_int32, _INT, _ADDRESS, _ADDRESS, ctypes.c_uint8)
        self._add_plain = _function(library.add_plain, _INT, _ADDRESS)
        type_, flag = ctypes.c_uint8, ctypes.c_int32
        self._absorb = _function(
            library.absorb, flag, _INT, ctypes.c_uint32, _ADDRESS, type_, type_, _ADDRESS, _ADDRESS, flag, flag
        )
        self._differences = _function(library.differences, None, _INT, _ADDRESS, _ADDRESS, _ADDRESS)
        self._largest = _function(library.largest, ctypes.c_double, _INT, _ADDRESS, _ADDRESS, _INT, _ADDRESS)
        self._sum_classes = _function(
            library.sum_classes, None, _INT, _ADDRESS, _ADDRESS, _ADDRESS, ctypes.c_double, _ADDRESS, _ADDRESS
        )
        self._bounds = _function(library.bounds, None, _INT, _ADDRESS, _ADDRESS, _ADDRESS, _INT, _ADDRESS)
        self._sum_integers = _function(library.sum_integers, None, _INT, _ADDRESS, _ADDRESS, _ADDRESS)
        self._add_rollups = _function(library.add_rollups, _INT, _ADDRESS, _ADDRESS, _ADDRESS, type_, type_)
        self._pack_rollups = _function(library.pack_rollups, _INT, _ADDRESS)
        self._enter_types = _function(library.enter_types, flag, _ADDRESS, _ADDRESS, type_, type_, type_)
        self._add_block = _function(library.add_block, _INT, _ADDRESS, _ADDRESS, _ADDRESS, type_, type_)
        self._json_numbers = _function(
            library.json_numbers, _INT, _INT, ctypes.c_char_p, _INT, _INT, _ADDRESS, _ADDRESS, _ADDRESS
        )
        self._is_ordered = _function(library.is_ordered, flag, _INT, _ADDRESS, _ADDRESS, _ADDRESS)
        word = ctypes.c_uint64
        self._hash_rows = _function(library.hash_rows, None, _INT, _INT, _ADDRESS, _ADDRESS, word, _ADDRESS)
        self._json_points = _function(library.json_points, _INT, _ADDRESS, _ADDRESS)

    def mark_slots(self, slots: Ints, marks: Bytes, mark: int) -> bool:
        """Mark slots, unless one of them is marked: then return False."""
        return not self._mark_slots(len(slots), _address(slots), _address(marks), mark)

    def add_plain(
        self, columns: Sequence[npt.NDArray[Any]], state: Sequence[npt.NDArray[Any]], bounds: tuple[int, int, int]
    ) -> int:
        """Store samples of numbers, each the next of its series, in a bucket that has no sample of it. Return how many
        were stored: all before the first of another kind, or up to a thousand fewer.

        columns: slots, time, birth, cell and type of distinct slots. state: by slot type + 1, has samples, birth, last
        time, last value; count, offset and last of the bucket. bounds: the samples are later than the first and not
        later than the second, and those before them later than the third."""
        slots, time_ms, birth_ms, cell, type_ = map(_address, columns)
        run = _PlainRun(
            len(columns[0]), ValueType.STRING, *bounds, slots, time_ms, birth_ms, cell, type_, *map(_address, state)
        )
        stored: int = self._add_plain(ctypes.addressof(run))
        return stored

    def absorb(
        self, mine: Sequence[npt.NDArray[Any]], theirs: Sequence[npt.NDArray[Any]], folded: tuple[bool, bool],
        types: Bytes, later_ms: int,
    ) -> bool:  # fmt: skip
        """Add the cells of one block to another, both as columns count, offset, last, min, max, sum; folded: whether
        folded statistics of each were written. False if two strings were sampled at one time."""
        to, other = (_Block(*map(_address, columns)) for columns in (mine, theirs))
        blocks = ctypes.addressof(to), ctypes.addressof(other)
        codes = ValueType.DOUBLE, ValueType.STRING
        return bool(self._absorb(len(types), later_ms, _address(types), *codes, *blocks, *folded))

    def differences(self, block: Sequence[npt.NDArray[Any]], doubles: Bools) -> list[Words] | None:
        """Return the words that a packed block stores for last, min, max and sum. None unless the length is a multiple
        of 4. block: columns as in `absorb`, with folded statistics."""
        n = len(doubles)
        if n % 4:
            return None
        words = [np.empty(n, np.uint64) for _ in range(4)]
        columns, out = _Block(*map(_address, block)), (_ADDRESS * 4)(*map(_address, words))
        self._differences(n, _address(doubles), ctypes.addressof(columns), ctypes.addressof(out))
        return words

    def largest(self, values: Floats, class_of: Ints | None, classes: int, present: Bools | None) -> float:
        """Return the greatest absolute value of series whose class is below `classes`; NaN if one of them is NaN."""
        of, there = (None if array is None else _address(array) for array in (class_of, present))
        found: float = self._largest(len(values), _address(values), of, classes, there)
        return found

    def sum_classes(
        self, values: Floats, class_of: Ints, present: Bools | None, sigma: float, high: Floats, low: Floats
    ) -> None:
        """Add the values of each class to `high` and `low`, split by sigma as in exact_sums.py, absent ones as 0."""
        there = None if present is None else _address(present)
        columns = _address(values), _address(class_of), there
        self._sum_classes(len(values), *columns, sigma, _address(high), _address(low))

    def bounds(self, cells: Ints, before: Ints | None, class_of: Ints, classes: int) -> list[int]:
        """Return the least and the greatest cell, and difference to the cell before, of at least one series whose class
        is below `classes`. Without `before` the differences are 0; they wrap around."""
        found, earlier = np.empty(4, np.int64), None if before is None else _address(before)
        self._bounds(len(cells), _address(cells), earlier, _address(class_of), classes, _address(found))
        return list(found.tolist())

    def sum_integers(self, cells: Ints, class_of: Ints, classes: int) -> Ints:
        """Return the sum of each class, modulo 2^64. class_of: `classes` for series to leave out."""
        sums = np.zeros(classes + 1, np.int64)
        self._sum_integers(len(cells), _address(cells), _address(class_of), _address(sums))
        return sums[:-1]

    def add_rollups(
        self,
        rows: Sequence[npt.NDArray[Any]],
        matrices: Sequence[Ints | None],
        lives: Sequence[npt.NDArray[Any]],
        grid: tuple[int, int, int],
        no_type: int,
    ) -> int:
        """Merge rows of roll-ups of numbers into matrices (columns, series). Return the number of `others`; -1 if a
        series has two types: then only types of series were entered.

        rows: series, end of the bucket, start time, time of the first and of the last sample, count, last, min, max,
        sum, type. matrices: count, last, last_time, min, max, sum; None: not wanted. lives: by series type, newest
        time, place in the matrices, and of one incarnation whether it is there, start time, time of the first and of
        the last sample, last; `others`, (rows, 5), gets the series and these of further incarnations. grid: start, step
        and number of columns."""
        held = _Rollups(len(rows[1]), *grid, len(lives[2]), *map(_address, rows))
        cells, lived = _matrix_and_lives(matrices, lives)
        addresses = ctypes.addressof(held), ctypes.addressof(cells), ctypes.addressof(lived)
        others: int = self._add_rollups(*addresses, ValueType.DOUBLE, no_type)
        return others

    def pack_rollups(
        self, base_us: int, columns: Sequence[npt.NDArray[Any]], packed: Sequence[npt.NDArray[Any]]
    ) -> int:
        """Pack rows as a file has them, times in microseconds. Return the number of runs of one source, series, start
        time and type; -1 for rows that cannot be packed: their ends are no whole seconds after the base, or a time or
        count needs more than 32 bits.

        columns: source, series, end of the bucket, start time, time of the first and of the last sample, count, value,
        type. packed: rows (PACKED), and of each run source, series, start time in milliseconds, first row, type."""
        held = _Packing(len(columns[0]), base_us, *map(_address, columns), *map(_address, packed))
        runs: int = self._pack_rollups(ctypes.addressof(held))
        return runs

    def enter_types(self, rows: BlockRows, types: Bytes, no_type: int) -> bool:
        """Enter the types of the series of these rows; False if one has another type, or texts."""
        held = rows.struct(len(types))
        codes = ValueType.STRING, ValueType.ENDED, no_type
        return bool(self._enter_types(ctypes.addressof(held), _address(types), *codes))

    def add_block(
        self, rows: BlockRows, matrices: Sequence[Ints | None], lives: Sequence[npt.NDArray[Any]]
    ) -> tuple[int, int]:
        """`add_rollups` of these rows, whose types are entered; return the number of `others` and of rows. Threads may
        merge rows of distinct series at a time. lives: those of `add_rollups`, and the newest end by series."""
        held = rows.struct(len(lives[2]))
        cells, lived = _matrix_and_lives(matrices, lives)
        at = ctypes.addressof(held), ctypes.addressof(cells), ctypes.addressof(lived)
        others: int = self._add_block(*at, ValueType.DOUBLE, ValueType.ENDED)
        return others, held.merged

    def is_ordered(self, source: Ints, series: Ints, time: Ints) -> bool:
        """Return True if no row is less than the one before it."""
        return bool(self._is_ordered(len(source), *map(_address, (source, series, time))))

    def hash_rows(self, words: Sequence[Words], factors: Words, first: int) -> Words:
        """Return the hash of each row: `first` and its words, each with the factor of its column."""
        out, places = np.empty(len(words[0]), np.uint64), np.array([*map(_address, words)], np.uint64)
        self._hash_rows(len(out), len(words), _address(places), _address(factors), first, _address(out))
        return out

    def json_numbers(
        self, text: bytes, at: int, whole: bool = False, most: int | None = None
    ) -> tuple[npt.NDArray[Any], int] | None:
        """Return the numbers of an array of JSON, as float64 with null as NaN, or as int64, and the place after it.
        `at`: after its opening bracket. None for an array that a complete parser must read: with blanks, other values,
        or numbers of more than 53 bits or 22 decimal places, or with more than `most` numbers."""
        if (close := text.find(b"]", at)) < 0:
            return None
        if most is None:
            most = (close - at) // 2 + 1  # each number has a digit and a comma
        found, count = np.empty(most, np.int64 if whole else np.float64), np.zeros(1, np.int64)
        places = (None, _address(found)) if whole else (_address(found), None)
        end: int = self._json_numbers(len(text), text, at, most, *places, _address(count))
        return None if end < 0 else (found[: count[0]], end)

    def json_points(
        self, heads: Sequence[bytes], times: Sequence[bytes], numbers: bytes, here: Bools, tail: bytes
    ) -> bytes:
        """Return for each series its head, its points and the tail. A point is the text before a number, the number,
        and its end; `here` (series, times) masks the points, numbers: texts of all cells with commas between them."""
        n, columns = here.shape
        head_ends, time_ends = _ends(heads), _ends(times)
        size = int(head_ends[-1]) + n * (int(time_ends[-1]) + len(tail) + 3 * columns) + len(numbers)
        out, texts = np.empty(size, np.uint8), (b"".join(times), b"".join(heads))
        ends = _address(time_ends), _address(head_ends)
        points = _Points(n, columns, len(numbers), numbers, _address(here), *texts, tail, *ends, len(tail))
        return out[: self._json_points(ctypes.addressof(points), _address(out))].tobytes()


def _ends(texts: Sequence[bytes]) -> Ints:
    """Return the place after each of these texts in all of them."""
    return np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))


@cache
def kernels() -> Kernels | None:
    """Return the kernels, built if necessary; None if they are not available."""
    try:
        return Kernels(build(FOLDER))
    except NOT_AVAILABLE:
        return None


def build(folder: Path) -> Path:
    """Return the library in `folder`, compiled if it is not there."""
    return build_library(SOURCE, folder)


if __name__ == "__main__":
    print(build(FOLDER))
