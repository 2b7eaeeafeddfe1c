"""The few file operations of the log, behind one small seam: crash tests put their own file layer in its place."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Protocol


class LogError(RuntimeError):
    """Something is wrong with a write-ahead log. The text says what, where and what to do."""


class LogLocked(LogError):
    """Another process holds the folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(folder, holder)
        self.folder, self.holder = folder, holder

    def __str__(self) -> str:
        return (
            f"the log {self.folder} is in use by {self.holder}: stop that process, "
            "or give this agent a data folder of its own"
        )


class Files(Protocol):
    """What the log does to a disk. Every method raises OSError as the system does."""

    def create(self, path: Path) -> int:
        """A descriptor of a new, empty file, for reading and appending."""
        ...

    def open(self, path: Path) -> int:
        """A descriptor of an existing file, for reading and writing."""
        ...

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        """All of `data` at `offset`."""
        ...

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`."""
        ...

    def truncate(self, descriptor: int, length: int) -> None: ...

    def fsync(self, descriptor: int) -> None: ...

    def fsync_folder(self, folder: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def close(self, descriptor: int) -> None: ...


class SystemFiles:
    """The real disk."""

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

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


def write_whole(files: Files, path: Path, data: bytes) -> None:
    """Make `path` hold `data`, durable when this returns; a crash leaves the old file or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = files.create(fresh)
    try:
        files.write(descriptor, 0, data)
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
    fresh.replace(path)
    files.fsync_folder(path.parent)


class FolderLock:
    """One process a folder. The kernel drops the lock with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises LogLocked, naming the holder, when another process has it."""
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 1000, 0).decode(errors="replace").strip() or "an unnamed process"
            os.close(self._descriptor)
            raise LogLocked(folder, holder) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)

    def release(self) -> None:
        """Let go; the file stays, because deleting it would let two processes lock two files of one name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
