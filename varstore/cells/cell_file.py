"""Temporary files of packed cells: written once, read through the page cache, gone with the process.

Cells are appended to chunks, files without a name that are mapped for reading. A chunk is deleted once it has no array.
Each level has chunks of its own, so that cells which are dropped together lie together.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.model.select import SelectError

LEAST_CHUNK_BYTES = 16 << 20
CHUNK_SHARE = 64
"""Size of a new chunk: at least 16 MiB, and a 64th of what is written, so that there are about a hundred at most, with
two file descriptors each. Only written parts of a chunk take space."""
QUOTA_BYTES = 64 << 30
FREE_BYTES = 256 << 20
"""Least free space on the disk; cells stay in memory beyond it."""
READ_BYTES = 512 << 10
"""Extents that adjoin are read together up to this size."""
_ALIGNMENT = 64


class CellsUnreadable(SelectError):
    """Cells cannot be read from their file."""

    of_query = False


class _Chunk:
    """One file. Invariant: `base`, the bytes of the mapping, lives as long as any array in the chunk."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.file: BinaryIO = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  closed with the chunk
        os.ftruncate(self.file.fileno(), size)
        self.mapping = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ)
        self.mapping.madvise(mmap.MADV_RANDOM)  # a fault reads one page; `warm` reads the rest
        self.base: npt.NDArray[np.uint8] | None = np.frombuffer(self.mapping, np.uint8)
        self._base = weakref.ref(self.base)
        self.address: int = self.base.ctypes.data
        self.used = self.synced = 0

    def fits(self, size: int) -> bool:
        """True if `size` bytes can be appended."""
        return self.base is not None and self.used + size <= self.size

    def close_writing(self) -> None:
        """Append nothing more, so that the chunk ends with its last array."""
        self.base = None

    def is_used(self) -> bool:
        """True while the chunk is written, or has an array."""
        return self._base() is not None


class Extent(NamedTuple):
    """Bytes [start, stop) of a chunk."""

    chunk: _Chunk
    start: int
    stop: int

    def is_cached(self) -> bool:
        """True if all pages are in the page cache."""
        first, size = _whole_pages(self.start, self.stop)
        pages = ctypes.create_string_buffer(size // mmap.PAGESIZE)
        if _libc().mincore(self.chunk.address + first, size, pages):
            return True  # the kernel cannot tell: a page that is missing is then read when it is needed
        return b"\0" not in pages.raw


def _whole_pages(start: int, stop: int) -> tuple[int, int]:
    """Return the start and the size of the pages that contain [start, stop)."""
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    return first, -(-stop // mmap.PAGESIZE) * mmap.PAGESIZE - first


@cache
def _libc() -> ctypes.PyDLL:
    """Library of the system; its calls keep the interpreter's lock, as they take a microsecond."""
    library = ctypes.PyDLL(None)
    library.mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    return library


def warm(extents: Iterable[Extent]) -> None:
    """Read what is not in the page cache from the disk, without the interpreter's lock.

    Raises CellsUnreadable, where an array would end the process by a signal."""
    cold = [extent for extent in _joined(extents) if not extent.is_cached()]
    try:
        buffer = memoryview(bytearray(max((extent.stop - extent.start for extent in cold), default=0)))
        for extent in cold:
            os.preadv(extent.chunk.file.fileno(), [buffer[: extent.stop - extent.start]], extent.start)
    except OSError as error:
        raise CellsUnreadable(f"buckets of this shard cannot be read from disk ({error}): restart the shard") from error


def _joined(extents: Iterable[Extent]) -> list[Extent]:
    """Join consecutive extents that adjoin, such as the columns of a segment."""
    found = list[Extent]()
    chunk: _Chunk | None = None
    start = stop = 0
    for one in extents:
        if one.chunk is chunk and one.start == stop and one.stop - start <= READ_BYTES:
            stop = one.stop
            continue
        if chunk is not None:
            found.append(Extent(chunk, start, stop))
        chunk, start, stop = one
    return found if chunk is None else [*found, Extent(chunk, start, stop)]


class CellFile:
    """Chunks of packed cells in a folder. One thread writes; any thread reads the arrays."""

    def __init__(self, folder: Path, quota_bytes: int = QUOTA_BYTES) -> None:
        """The folder is created when it is needed."""
        self.folder, self._quota_bytes = folder, quota_bytes
        self._chunks: list[_Chunk] = []
        self._current: dict[int, _Chunk] = {}

    @property
    def nbytes(self) -> int:
        """Bytes written to the chunks that are left."""
        return sum(chunk.used for chunk in self._chunks)

    def append(self, level: int, arrays: Sequence[npt.NDArray[Any]]) -> tuple[list[npt.NDArray[Any]], Extent]:
        """Write arrays to the chunk of a level; return read-only arrays in the file, and their place.

        They are on disk after `sync`. Raises OSError; nothing is kept then."""
        sizes = [-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]
        total = sum(sizes)
        chunk = self._chunk(level, total)
        data, at = np.zeros(total, np.uint8), 0
        for array, size in zip(arrays, sizes, strict=True):
            data[at : at + array.nbytes] = array.view(np.uint8)
            at += size
        self._write(chunk, data)
        start = at = chunk.used
        chunk.used += total
        placed = list[npt.NDArray[Any]]()
        for array, size in zip(arrays, sizes, strict=True):
            assert chunk.base is not None
            placed.append(chunk.base[at : at + array.nbytes].view(array.dtype))
            at += size
        return placed, Extent(chunk, start, chunk.used)

    def _chunk(self, level: int, size: int) -> _Chunk:
        """Return the chunk of a level with room for `size` bytes. Raises OSError beyond the quota."""
        held = self.nbytes
        if held + size > self._quota_bytes:
            raise OSError(errno.EDQUOT, f"buckets on disk take {held} of {self._quota_bytes} bytes")
        chunk = self._current.get(level)
        if chunk is None or not chunk.fits(size):
            self.folder.mkdir(parents=True, exist_ok=True)
            made = _Chunk(self.folder, max(LEAST_CHUNK_BYTES, held // CHUNK_SHARE // mmap.PAGESIZE * mmap.PAGESIZE))
            if chunk is not None:
                chunk.close_writing()
            chunk = self._current[level] = made
            self._chunks.append(chunk)
        return chunk

    def _write(self, chunk: _Chunk, data: npt.NDArray[np.uint8]) -> None:
        """Write behind the used part of a chunk."""
        file = chunk.file.fileno()
        disk = os.fstatvfs(file)
        free = disk.f_bavail * disk.f_frsize
        if free < FREE_BYTES + len(data):
            raise OSError(errno.ENOSPC, f"{free} bytes are free, {FREE_BYTES} must stay free")
        written = os.pwrite(file, data.data, chunk.used)
        if written < len(data):
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes were written")

    def sync(self) -> None:
        """Wait until everything appended is on disk: only then may its copy in memory go. Raises OSError."""
        for chunk in self._chunks:
            if chunk.synced < chunk.used:
                used = chunk.used
                os.fdatasync(chunk.file.fileno())
                chunk.synced = used

    def abandon(self) -> None:
        """Write no more to the present chunks, after an error: the system reports it only once."""
        for chunk in self._current.values():
            chunk.close_writing()
        self._current.clear()

    def release(self) -> None:
        """Delete chunks without arrays, and take pages that were read out of the process; the page cache keeps them."""
        self._chunks = [chunk for chunk in self._chunks if chunk.is_used()]
        for chunk in self._chunks:
            chunk.mapping.madvise(mmap.MADV_DONTNEED)
