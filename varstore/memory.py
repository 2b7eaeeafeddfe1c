"""Big zeroed arrays of which only touched pages are resident."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


class CapacityError(MemoryError):
    """The machine does not lend the address space that the stated capacity needs."""


def lazy_zeros(cells: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """(cells,) zeros of `dtype`; a page becomes resident when it is first written.

    Huge pages are refused: with them one written cell a bucket row would keep 2 MiB (numpy asks for them on its own).
    """
    size = max(1, cells) * np.dtype(dtype).itemsize
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as error:
        raise CapacityError(f"{size} bytes of address space for {cells} cells refused: lower the capacity") from error
    block.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(block, dtype)[:cells]
