"""Lazily allocated zeroed arrays: only touched pages are resident."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


class CapacityError(MemoryError):
    """The system refuses the address space that the configured capacity needs."""


def lazy_block(size: int) -> mmap.mmap:
    """Map `size` zero bytes; a page becomes resident when it is first written.

    Huge pages are disabled: with them one written cell per bucket row would keep 2 MiB (numpy enables them by default).
    """
    try:
        block = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as error:
        raise CapacityError(f"{size} bytes of address space refused: lower the capacity") from error
    block.madvise(mmap.MADV_NOHUGEPAGE)
    return block


def lazy_zeros(cells: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Array of `cells` zeros of `dtype` in its own `lazy_block`."""
    return np.frombuffer(lazy_block(max(1, cells) * np.dtype(dtype).itemsize), dtype)[:cells]


def release_pages(block: mmap.mmap, start: int, length: int) -> None:
    """Zero bytes [start, start + length) of a block and release the pages that lie wholly inside."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (start + length) // mmap.PAGESIZE * mmap.PAGESIZE
    if first >= end:
        block[start : start + length] = bytes(length)
        return
    block[start:first] = bytes(first - start)
    block[end : start + length] = bytes(start + length - end)
    block.madvise(mmap.MADV_DONTNEED, first, end - first)
