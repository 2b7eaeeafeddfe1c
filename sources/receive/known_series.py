"""Hash table of the series that a sender sent before, by the bytes before their sample: known_series.c, built by the C
compiler of the machine.

`series_kernels()` is None without a compiler or a library that was built before; then a dictionary has the keys."""

from __future__ import annotations

import ctypes
import secrets
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from artimon.runtime.compiled_library import ADDRESS, INT, NOT_AVAILABLE, address, build_library, folder_of, typed
from sources.state.start_times import Ints

SOURCE = Path(__file__).with_suffix(".c")
_SLOTS, _KEY_BYTES = 1_024, 65_536
"""Size of a new table; both are doubled when needed."""
_WORDS = 4
"""Of a slot: hash, first byte and length of the key, column."""
Spans = tuple[Ints, Ints]
"""First byte and length of each series in a body."""


class _Table(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint64), ("seed", ctypes.c_uint64), ("slots", ADDRESS), ("keys", ADDRESS))


class _Samples(ctypes.Structure):
    _fields_ = (("n", INT), *((name, ADDRESS) for name in ("start", "length", "column", "time_ms", "cell")))


class SeriesKernels:
    """Functions of the library."""

    def __init__(self, path: Path) -> None:
        """Raise OSError unless the file is a library for this machine."""
        library = ctypes.CDLL(str(path))
        self.divide = typed(library.divide, INT, INT, ADDRESS, INT, ADDRESS, ADDRESS)
        self.enter = typed(library.enter, ctypes.c_int32, ADDRESS, INT, ADDRESS, INT, INT)
        self.enter_all = typed(library.enter_all, None, ADDRESS, ADDRESS)
        self.read_known = typed(library.read_known, None, ADDRESS, ADDRESS, ADDRESS)


@cache
def series_kernels() -> SeriesKernels | None:
    """Return the functions, built if necessary; None if they are not available."""
    try:
        return SeriesKernels(build_library(SOURCE, folder_of(SOURCE)))
    except NOT_AVAILABLE:
        return None


class KnownSeries:
    """Column of each key. One thread at a time.

    `_slots` is at most half full. `_keys` holds the bytes of all keys, of which `_used` are taken. The random seed
    of the hash keeps senders from choosing keys that collide."""

    def __init__(self, kernels: SeriesKernels) -> None:
        self._kernels, self._seed = kernels, secrets.randbits(64)
        self._slots: Ints = np.zeros((_SLOTS, _WORDS), np.int64)
        self._keys: npt.NDArray[np.uint8] = np.empty(_KEY_BYTES, np.uint8)
        self._used = self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: bytes, column: int) -> bool:
        """Add a key, which is not empty, unless it is there. Return False if it has no place."""
        if 2 * self._count >= len(self._slots):
            self._grow()
        if self._used + len(key) > len(self._keys):
            more = np.empty(len(self._keys) + len(key), np.uint8)
            self._keys = np.concatenate((self._keys, more))
        added = self._kernels.enter(ctypes.byref(self._table()), len(key), key, self._used, column)
        if added > 0:
            self._count, self._used = self._count + 1, self._used + len(key)
        return bool(added >= 0)

    def divide(self, body: bytes, most: int) -> Spans | None:
        """Return the series of a body; None if it has other fields or more than `most` series, or is damaged."""
        spans = np.empty((2, min(most, len(body) // 2)), np.int64)
        start, length = spans
        count = self._kernels.divide(len(body), body, len(start), address(start), address(length))
        return None if count < 0 else (start[:count], length[:count])

    def read(self, body: bytes, spans: Spans) -> tuple[Ints, Ints, Ints]:
        """Return column, time and bits of the value of the only sample of each series. Column UNKNOWN: its bytes are no
        key, or no such sample follows them; then the others are arbitrary."""
        start, length = spans
        found = np.empty((3, len(start)), np.int64)
        column, time_ms, cell = found
        samples = _Samples(len(start), *map(address, (start, length, column, time_ms, cell)))
        self._kernels.read_known(ctypes.byref(self._table()), body, ctypes.byref(samples))
        return column, time_ms, cell

    def _grow(self) -> None:
        before, old = self._table(), self._slots
        self._slots = np.zeros((2 * len(old), _WORDS), np.int64)
        after = self._table()
        self._kernels.enter_all(ctypes.byref(before), ctypes.byref(after))

    def _table(self) -> _Table:
        return _Table(len(self._slots), self._seed, address(self._slots), address(self._keys))


def known_series() -> KnownSeries | None:
    """Return a new table; None if the functions are not available."""
    kernels = series_kernels()
    return None if kernels is None else KnownSeries(kernels)


if __name__ == "__main__":
    print(build_library(SOURCE, folder_of(SOURCE)))
