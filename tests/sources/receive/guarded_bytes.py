"""Damaged bytes, and bytes behind which nothing may be read."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from artimon.runtime.compiled_library import address


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with a few of them changed, removed or added, or cut off."""
    found = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(found) + 1)
        found[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
    return bytes(found[: dice.randrange(len(found) + 1)] if dice.random() < 0.1 else found)


@contextmanager
def guarded(data: bytes) -> Iterator[int]:
    """Yield the address of bytes that end where a page without access begins."""
    page = mmap.PAGESIZE
    size = -(-max(1, len(data)) // page) * page
    memory = mmap.mmap(-1, size + page)
    held = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    protect = libc.mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first = address(held)
    held[size - len(data) : size] = np.frombuffer(data, np.uint8)
    assert protect(first + size, page, 0) == 0
    try:
        yield first + size - len(data)
    finally:
        assert protect(first + size, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        del held
        memory.close()
