"""Hash table with keys of bytes, for the compiled look-ups of receivers: key_table.h."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from artimon.runtime.compiled_library import ADDRESS, INT, address, build_library, folder_of, typed
from sources.state.start_times import Ints

MAX_CACHED = 400_000
"""Limit of the keys of a table; a sender that reaches it is forgotten, with all its keys, before its next body."""
UNKNOWN = -2
"""Column of a series that is new."""
KEY_BYTES = 8_192
"""Maximum size of a key that the functions put together."""
_SLOTS, _TABLE_BYTES = 1_024, 65_536
"""Size of a new table; both are doubled when needed."""
_WORDS = 4
"""Of a slot: hash, first byte and length of the key, column."""
_FULL = -2
"""Result of functions that need a larger table."""


class _Table(ctypes.Structure):
    _fields_ = (
        *(("size", ctypes.c_uint64), ("seed", ctypes.c_uint64)),
        *((name, INT) for name in ("count", "most", "used", "room")),
        *(("slots", ADDRESS), ("keys", ADDRESS)),
    )


class TableKernels:
    """Functions of a library with the table."""

    def __init__(self, source: Path) -> None:
        """Build the library if necessary. Raises NOT_AVAILABLE."""
        self.library = ctypes.CDLL(str(build_library(source, folder_of(source))))
        self.enter = typed(self.library.enter, ctypes.c_int32, ADDRESS, INT, ADDRESS, INT)
        self.enter_all = typed(self.library.enter_all, None, ADDRESS, ADDRESS)


class KeyTable:
    """Column of each key. One thread at a time.

    `_slots` is at most half full. `_keys` holds the bytes of all keys. The random seed of the hash keeps senders from
    choosing keys that collide."""

    def __init__(self, kernels: TableKernels) -> None:
        self._enter, self._enter_all = kernels.enter, kernels.enter_all
        self._slots: Ints = np.zeros((_SLOTS, _WORDS), np.int64)
        self._keys: npt.NDArray[np.uint8] = np.empty(_TABLE_BYTES, np.uint8)
        self._table = _Table(seed=secrets.randbits(64), most=MAX_CACHED)
        self._point()

    def __len__(self) -> int:
        return int(self._table.count)

    @property
    def key_bytes(self) -> int:
        return int(self._table.used)

    @property
    def reference(self) -> object:
        """Pointer for the functions."""
        return ctypes.byref(self._table)

    def add(self, key: bytes, column: int) -> bool:
        """Add a key, which is not empty, unless it is there. Return False if it has no place."""
        return self.retry(lambda: int(self._enter(self.reference, len(key), key, column)), len(key)) >= 0

    def retry(self, function: Callable[[], int], size: int = KEY_BYTES) -> int:
        """Return the result of a function that enters keys of at most `size` bytes. It is called again with a larger
        table while this one is full."""
        while (result := function()) == _FULL:
            self._grow(size)
        return result

    def _grow(self, size: int) -> None:
        before, old = self._table, self._slots
        self._table = _Table.from_buffer_copy(before)
        if before.room - before.used < size:
            more = np.empty(len(self._keys) + size, np.uint8)
            self._keys = np.concatenate((self._keys, more))
        is_full = 2 * before.count >= before.size
        if is_full:
            self._slots = np.zeros((2 * len(old), _WORDS), np.int64)
        self._point()
        if is_full:
            before.keys = self._table.keys
            self._enter_all(ctypes.byref(before), self.reference)

    def _point(self) -> None:
        """Enter addresses and sizes of the arrays."""
        self._table.size, self._table.room = len(self._slots), len(self._keys)
        self._table.slots, self._table.keys = address(self._slots), address(self._keys)
