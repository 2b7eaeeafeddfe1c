"""File operations of the log behind one protocol. Crash tests and the simulation replace it, so all disk access in this
folder goes through it."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

FileBytes = bytes | mmap.mmap
"""Content of a file."""


class LogError(RuntimeError):
    """Error of a write-ahead log. The text names the problem, the place and the remedy."""


_TEMPORARY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def is_temporary(error: Exception) -> bool:
    """Return True for a temporary shortage (descriptors, memory) that leaves the data on disk intact."""
    return isinstance(error, OSError) and error.errno in _TEMPORARY


class LogLockedError(LogError):
    """Another process holds the lock of the folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(folder, holder)
        self.folder, self.holder = folder, holder

    def __str__(self) -> str:
        return (
            f"the log {self.folder} is in use by {self.holder}: stop that process, "
            "or give this agent its own data folder"
        )


class Lock(Protocol):
    """Lock on a folder."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Disk operations of the log. Every method raises OSError as the system does."""

    def create(self, path: Path) -> int:
        """Create an empty file; returns a descriptor for reading and appending."""
        ...

    def open(self, path: Path) -> int:
        """Open an existing file; returns a descriptor for reading and writing."""
        ...

    def write(self, descriptor: int, offset: int, data: bytes) -> None: ...

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        """Return at most `length` bytes from `offset`."""
        ...

    def truncate(self, descriptor: int, length: int) -> None: ...

    def fsync(self, descriptor: int) -> None: ...

    def fsync_folder(self, folder: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a folder; an existing `target` is replaced."""
        ...

    def close(self, descriptor: int) -> None: ...

    def make_folder(self, path: Path) -> None:
        """Create one folder, whose parent exists."""
        ...

    def list_names(self, folder: Path) -> list[str]:
        """Return the names of the entries of a folder, in no order."""
        ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def inode(self, path: Path) -> int: ...

    def load(self, path: Path) -> AbstractContextManager[FileBytes]:
        """Return the whole content, valid until the context ends."""
        ...

    def lock(self, folder: Path) -> Lock:
        """Lock the folder against other processes; raises LogLockedError, naming the holder."""
        ...


class LocalFileSystem:
    """Files on the real disk."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        return os.pread(descriptor, length, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def fsync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def list_names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def inode(self, path: Path) -> int:
        return path.stat().st_ino

    @contextmanager
    def load(self, path: Path) -> Iterator[FileBytes]:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                yield b""
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                data.madvise(mmap.MADV_SEQUENTIAL)
                yield data

    def lock(self, folder: Path) -> Lock:
        return FolderLock(folder)


LOCAL_FILE_SYSTEM = LocalFileSystem()


def replace_file(files: FileSystem, path: Path, data: bytes | Callable[[int], bytes]) -> None:
    """Make `path` hold `data`, durable when this returns; a crash leaves the old file or the new one. A callable gets
    the inode of the file and returns its content."""
    fresh = path.with_name(path.name + ".new")
    if files.exists(fresh):
        files.unlink(fresh)
    descriptor = files.create(fresh)
    try:
        files.write(descriptor, 0, data if isinstance(data, bytes) else data(files.inode(fresh)))
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
    files.replace(fresh, path)
    files.fsync_folder(path.parent)


def read_file(files: FileSystem, path: Path) -> bytes:
    """Return the content of a small file."""
    with files.load(path) as data:
        return bytes(data)


def ensure_folder(files: FileSystem, path: Path) -> None:
    """Create `path` and its missing parents, each with a durable folder entry: a power failure that removes the folder
    removes the log. An existing folder may come from a process that ended before its entry was durable, so the entry of
    the first existing one is fsynced again."""
    if files.exists(path):
        with suppress(PermissionError):  # then another user made it
            files.fsync_folder(path.parent)
        return
    ensure_folder(files, path.parent)
    files.make_folder(path)
    files.fsync_folder(path.parent)


class FolderLock:
    """Lock that admits one process to a folder. The kernel drops it with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises LogLockedError, naming the holder, when another process has it."""
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 1000, 0).decode(errors="replace").strip() or "an unnamed process"
            os.close(self._descriptor)
            raise LogLockedError(folder, holder) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)

    def release(self) -> None:
        """Release the lock. The file stays: deleting it would let two processes lock two files of one name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
