"""Files in memory that know what a power failure leaves: what was fsynced, and any part of the rest.

For crash tests and the simulation. Until it is fsynced, every write, truncation, creation, renaming and removal is one
operation that the disk may have done or not, independently of all others; a write may be torn or have holes. The
content of a file and its entry in the folder are made durable one by one. An fsync that fails has dropped what it
should have written: it can still be read, and no later fsync makes it durable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.log.files import Lock, LogLocked, Whole

_PIECE = 64
"""Bytes that reach the disk together."""


class PowerLoss(BaseException):
    """The machine goes off here: nothing of the process goes on, so nothing catches it but the test."""


@dataclass(slots=True, eq=False)
class File:
    """Content as it is read, as it is durable, and what came since: (offset, data), or a new length."""

    inode: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Folder:
    """Entries as they are seen, as they are durable, and what came since: each a set of names that change at once."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        _rename(self.entries, names)
        self.pending.append(names)


class VanishingFiles:
    """Implements pipeline.log.files.Files. Not thread-safe.

    `before(operation, path)` is called before each operation that changes anything, and may raise OSError or PowerLoss.
    `full`: writes keep their first half and fail."""

    def __init__(self, before: Callable[[str, Path], None] = lambda _operation, _path: None) -> None:
        self.before = before
        self.full = False
        self._root = Folder()
        self._open: dict[int, tuple[Path, File]] = {}
        self._locked: set[Path] = set()
        self._inodes = self._descriptors = 0

    # -- what happens to the machine

    def kill(self) -> None:
        """The process ends; the machine goes on."""
        self._open.clear()
        self._locked.clear()

    def power_off(self, rng: random.Random) -> None:
        """The machine goes off and comes back with what the disk happened to hold."""
        self.kill()
        _after_crash(self._root, rng)

    # -- Files

    def create(self, path: Path) -> int:
        self.before("create", path)
        folder = self._folder(path.parent)
        if path.name in folder.entries:
            raise FileExistsError(17, "File exists", str(path))
        self._inodes += 1
        made = File(self._inodes)
        folder.change({path.name: made})
        return self._opened(path, made)

    def open(self, path: Path) -> int:
        return self._opened(path, self._file(path))

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        path, file = self._open[descriptor]
        self.before("write", path)
        part = bytes(data[: len(data) // 2] if self.full else data)
        _put(file.data, offset, part)
        file.pending.append((offset, part))
        if self.full:
            raise OSError(28, "No space left on device")

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        return bytes(self._open[descriptor][1].data[offset : offset + length])

    def truncate(self, descriptor: int, length: int) -> None:
        path, file = self._open[descriptor]
        self.before("truncate", path)
        _cut(file.data, length)
        file.pending.append(length)

    def fsync(self, descriptor: int) -> None:
        path, file = self._open[descriptor]
        try:
            self.before("fsync", path)
        except OSError:
            file.pending.clear()
            raise
        for change in file.pending:
            _apply(file.durable, change)
        file.pending.clear()

    def fsync_folder(self, folder: Path) -> None:
        self.before("fsync_folder", folder)
        found = self._folder(folder)
        for names in found.pending:
            _rename(found.durable, names)
        found.pending.clear()

    def unlink(self, path: Path) -> None:
        self.before("unlink", path)
        self._file(path)
        self._folder(path.parent).change({path.name: None})

    def replace(self, source: Path, target: Path) -> None:
        self.before("replace", target)
        self._folder(source.parent).change({source.name: None, target.name: self._file(source)})

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def make_folder(self, path: Path) -> None:
        self.before("make_folder", path)
        parent = self._folder(path.parent)
        if path.name not in parent.entries:
            parent.change({path.name: Folder()})

    def names(self, folder: Path) -> list[str]:
        return list(self._folder(folder).entries)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def inode(self, path: Path) -> int:
        return self._file(path).inode

    @contextmanager
    def load(self, path: Path) -> Iterator[Whole]:
        yield bytes(self._file(path).data)

    def lock(self, folder: Path) -> Lock:
        if folder in self._locked:
            raise LogLocked(folder, "another process")
        self._locked.add(folder)
        return _Held(self._locked, folder)

    def _opened(self, path: Path, file: File) -> int:
        self._descriptors += 1
        self._open[self._descriptors] = (path, file)
        return self._descriptors

    def _find(self, path: Path) -> File | Folder | None:
        found: File | Folder | None = self._root
        for name in filter(None, str(path).split("/")):
            if not isinstance(found, Folder):
                return None
            found = found.entries.get(name)
        return found

    def _file(self, path: Path) -> File:
        found = self._find(path)
        if not isinstance(found, File):
            raise FileNotFoundError(2, "No such file", str(path))
        return found

    def _folder(self, path: Path) -> Folder:
        found = self._find(path)
        if not isinstance(found, Folder):
            raise FileNotFoundError(2, "No such folder", str(path))
        return found


class _Held:
    def __init__(self, locked: set[Path], folder: Path) -> None:
        self._locked, self._path = locked, folder

    def release(self) -> None:
        self._locked.discard(self._path)


def _rename(entries: dict[str, File | Folder], names: dict[str, File | Folder | None]) -> None:
    for name, what in names.items():
        if what is None:
            entries.pop(name, None)
        else:
            entries[name] = what


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
    for what in folder.entries.values():
        if isinstance(what, Folder):
            _after_crash(what, rng)
        else:
            _tear(what, rng)


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
    """All of a write, its beginning, or some pieces of it with holes between them."""
    how = rng.random()
    if how < 0.4:
        _put(data, offset, part)
    elif how < 0.7:
        _put(data, offset, part[: rng.randrange(len(part) + 1)])
    else:
        for at in range(0, len(part), _PIECE):
            if rng.random() < 0.5:
                _put(data, offset + at, part[at : at + _PIECE])
