"""Release of freed memory to the system: the C library would keep it in small pieces."""

from __future__ import annotations

import ctypes
import logging
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Parameters of glibc's mallopt."""


def be_frugal() -> None:
    """Configure the allocator of this process; call before it has many threads."""
    if (libc := _libc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, 64 * 1024)  # larger blocks are returned as soon as they are freed
        libc.mallopt(_ARENA_MAX, 2)  # every call with a deadline runs in a thread, each with its own heap


def give_back() -> None:
    """Release free memory now. Takes milliseconds: not for inner loops."""
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        return libc
    log.debug("this C library has no mallopt")
    return None
