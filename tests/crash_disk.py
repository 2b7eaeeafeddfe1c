"""Disk in memory for crash tests and the simulation. It separates readable state from durable state.

Content and folder entries become durable one by one, each by its own fsync. Until then every write, truncation,
creation, rename and removal is one operation that a loss of power applies or drops, independently of all others; a
write may be torn or have holes. A failed fsync drops its pending writes: they stay readable, and no later fsync
makes them durable."""

from __future__ import annotations

import copy
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.wal.file_system import FileBytes, Lock, LogLockedError

_PIECE = 64
"""Bytes that reach the disk together."""

Hook = Callable[[str, Path], None]
"""Called with the name of an operation and its path before the operation; may raise OSError or PowerLoss."""


class PowerLoss(BaseException):
    """Loss of power. Only the test catches it."""


@dataclass(slots=True, eq=False)
class File:
    """Readable content, durable content, and the changes since: (offset, data), or a new length."""

    inode: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)

    def flip(self, at: int, bits: int) -> None:
        """Change bits of a durable byte."""
        self.data[at] ^= bits
        self.durable[at] ^= bits


@dataclass(slots=True, eq=False)
class Folder:
    """Readable entries, durable entries, and the changes since: each a set of names that change at once."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        _rename(self.entries, names)
        self.pending.append(names)


def allow(_operation: str, _path: Path) -> None:
    """Hook of a disk that works."""


def refuse(*operations: str, code: int = errno.EIO) -> Hook:
    """Hook of a disk on which these operations fail."""

    def before(operation: str, path: Path) -> None:
        if operation in operations:
            raise OSError(code, os.strerror(code), str(path))

    return before


class CrashDisk:
    """Implements pipeline.wal.file_system.FileSystem.

    `before` is called before each operation that changes anything. `full`: writes keep their first half and fail.
    `fsyncs` counts those of files, failed ones too. `_lock` guards the tree; `before` is called without it."""

    def __init__(self, before: Hook = allow) -> None:
        self.before = before
        self.full = False
        self.fsyncs = 0
        self._lock = threading.RLock()
        self._root = Folder()
        self._open: dict[int, tuple[Path, File]] = {}
        self._locked: set[Path] = set()
        self._inodes = self._descriptors = 0

    # -- the machine

    def kill(self) -> None:
        """End the process; the machine stays up."""
        with self._lock:
            self._open.clear()
            self._locked.clear()

    def power_off(self, rng: random.Random) -> None:
        """Restart the machine with one of the possible states of the disk."""
        with self._lock:
            self.kill()
            _after_crash(self._root, rng)

    def survivor(self, rng: random.Random) -> CrashDisk:
        """Disk after a loss of power at this moment. This one stays in use."""
        found = CrashDisk()
        with self._lock:
            found._root, found._inodes = copy.deepcopy(self._root), self._inodes
        found.power_off(rng)
        return found

    # -- Files

    def create(self, path: Path) -> int:
        self.before("create", path)
        with self._lock:
            folder = self.folder(path.parent)
            if path.name in folder.entries:
                raise FileExistsError(errno.EEXIST, "File exists", str(path))
            self._inodes += 1
            made = File(self._inodes)
            folder.change({path.name: made})
            return self._opened(path, made)

    def open(self, path: Path) -> int:
        with self._lock:
            return self._opened(path, self.file(path))

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        path, file = self._held(descriptor)
        self.before("write", path)
        part = bytes(data[: len(data) // 2] if self.full else data)
        with self._lock:
            _put(file.data, offset, part)
            file.pending.append((offset, part))
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        return bytes(self._held(descriptor)[1].data[offset : offset + length])

    def truncate(self, descriptor: int, length: int) -> None:
        path, file = self._held(descriptor)
        self.before("truncate", path)
        with self._lock:
            _cut(file.data, length)
            file.pending.append(length)

    def fsync(self, descriptor: int) -> None:
        path, file = self._held(descriptor)
        self.fsyncs += 1
        try:
            self.before("fsync", path)
        except OSError:
            file.pending.clear()
            raise
        with self._lock:
            for change in file.pending:
                _apply(file.durable, change)
            file.pending.clear()

    def fsync_folder(self, folder: Path) -> None:
        self.before("fsync_folder", folder)
        with self._lock:
            found = self.folder(folder)
            for names in found.pending:
                _rename(found.durable, names)
            found.pending.clear()

    def unlink(self, path: Path) -> None:
        self.before("unlink", path)
        with self._lock:
            self.file(path)
            self.folder(path.parent).change({path.name: None})

    def replace(self, source: Path, target: Path) -> None:
        self.before("replace", target)
        with self._lock:
            self.folder(source.parent).change({source.name: None, target.name: self.file(source)})

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._open.pop(descriptor, None)  # no-op after the process was killed

    def make_folder(self, path: Path) -> None:
        self.before("make_folder", path)
        with self._lock:
            parent = self.folder(path.parent)
            if path.name not in parent.entries:
                parent.change({path.name: Folder()})

    def list_names(self, folder: Path) -> list[str]:
        return list(self.folder(folder).entries)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def size(self, path: Path) -> int:
        return len(self.file(path).data)

    def inode(self, path: Path) -> int:
        return self.file(path).inode

    @contextmanager
    def load(self, path: Path) -> Iterator[FileBytes]:
        yield bytes(self.file(path).data)

    def lock(self, folder: Path) -> Lock:
        self.folder(folder)
        with self._lock:
            if folder in self._locked:
                raise LogLockedError(folder, "another process")
            self._locked.add(folder)
        return _FolderLock(self._locked, folder)

    # -- the tree, for tests that damage it

    def file(self, path: Path) -> File:
        found = self._find(path)
        if not isinstance(found, File):
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return found

    def folder(self, path: Path) -> Folder:
        found = self._find(path)
        if not isinstance(found, Folder):
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(path))
        return found

    def _find(self, path: Path) -> File | Folder | None:
        found: File | Folder | None = self._root
        for name in filter(None, str(path).split("/")):
            if not isinstance(found, Folder):
                return None
            found = found.entries.get(name)
        return found

    def _opened(self, path: Path, file: File) -> int:
        self._descriptors += 1
        self._open[self._descriptors] = (path, file)
        return self._descriptors

    def _held(self, descriptor: int) -> tuple[Path, File]:
        try:
            return self._open[descriptor]
        except KeyError:
            raise OSError(errno.EBADF, "Bad file descriptor") from None


class _FolderLock:
    def __init__(self, locked: set[Path], folder: Path) -> None:
        self._locked, self._path = locked, folder

    def release(self) -> None:
        self._locked.discard(self._path)


def _rename(entries: dict[str, File | Folder], names: dict[str, File | Folder | None]) -> None:
    for name, found in names.items():
        if found is None:
            entries.pop(name, None)
        else:
            entries[name] = found


def _put(data: bytearray, offset: int, part: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(part)] = part


def _cut(data: bytearray, length: int) -> None:
    del data[length:]
    data.extend(bytes(length - len(data)))


def _apply(data: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        _cut(data, change)
    else:
        _put(data, *change)


def _after_crash(folder: Folder, rng: random.Random) -> None:
    for names in folder.pending:
        if rng.random() < 0.5:
            _rename(folder.durable, names)
    folder.pending.clear()
    folder.entries = dict(folder.durable)
    for found in folder.entries.values():
        if isinstance(found, Folder):
            _after_crash(found, rng)
        else:
            _tear(found, rng)


def _tear(file: File, rng: random.Random) -> None:
    changes = [change for change in file.pending if rng.random() < 0.6]
    rng.shuffle(changes)
    for change in changes:
        if isinstance(change, int):
            _cut(file.durable, change)
        else:
            _put_partly(file.durable, change[0], change[1], rng)
    file.pending.clear()
    file.data = bytearray(file.durable)


def _put_partly(data: bytearray, offset: int, part: bytes, rng: random.Random) -> None:
    """Apply all of a write, its beginning, or some pieces of it with holes between them."""
    lot = rng.random()
    if lot < 0.4:
        _put(data, offset, part)
    elif lot < 0.7:
        _put(data, offset, part[: rng.randrange(len(part) + 1)])
    else:
        for at in range(0, len(part), _PIECE):
            if rng.random() < 0.5:
                _put(data, offset + at, part[at : at + _PIECE])
