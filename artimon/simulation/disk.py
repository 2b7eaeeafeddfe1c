"""A disk in memory (pipeline.log.files.Files) that knows what a power failure leaves: what was fsynced, and any part of
the rest, in any order, torn anywhere; an entry of a folder only once the folder was fsynced."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from artimon.simulation.scheduler import Killed

_Change = tuple[int, bytes] | int
_Entry = tuple[str, str, str, int]
"""("link", folder, name, inode), ("unlink", folder, name, 0): a rename is both, one after the other and never apart."""


class _File:
    """One inode."""

    __slots__ = ("data", "durable", "pending")

    def __init__(self) -> None:
        self.data, self.durable = bytearray(), bytearray()
        self.pending: list[_Change] = []


class _Held:
    def release(self) -> None:
        """The process has let go."""


class SimDisk:
    """One machine's disk. Descriptors die with the process (`reopen`)."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._files: dict[int, _File] = {}
        self._folders: dict[str, dict[str, int]] = {"/": {}}
        self._durable_folders: dict[str, dict[str, int]] = {"/": {}}
        self._pending: dict[str, list[list[_Entry]]] = {"/": []}
        self._open: dict[int, _File] = {}
        self._next = 100
        self.dies_after: int | None = None
        """So many changes more, then the power fails in the midst of the next."""
        self.fails_after: int | None = None
        """So many fsyncs more, then one fails and what it should have made durable is lost."""
        self.full = False
        self.no_more_files = False
        """What is open can be written, and nothing be created."""
        self.fsyncs = 0

    # Files

    def create(self, path: Path) -> int:
        folder, name = _split(path)
        entries = self._entries(folder)
        if name in entries:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        if self.no_more_files:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._change()
        self._next += 1
        self._files[self._next] = _File()
        entries[name] = self._next
        self._pending[folder].append([("link", folder, name, self._next)])
        return self._descriptor(self._next)

    def open(self, path: Path) -> int:
        return self._descriptor(self._find(path))

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        file = self._file(descriptor)
        if self.full and len(data) > 1:
            _put(file.data, offset, data[: len(data) // 2])
            file.pending.append((offset, bytes(data[: len(data) // 2])))
            raise OSError(errno.ENOSPC, "No space left on device")
        _put(file.data, offset, data)
        file.pending.append((offset, bytes(data)))
        self._change()

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        return bytes(self._file(descriptor).data[offset : offset + length])

    def truncate(self, descriptor: int, length: int) -> None:
        file = self._file(descriptor)
        _cut(file.data, length)
        file.pending.append(length)
        self._change()

    def fsync(self, descriptor: int) -> None:
        self._change()
        self.fsyncs += 1
        file = self._file(descriptor)
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                self.fails_after = None
                file.pending.clear()  # the pages are clean and the data is gone: the next fsync would succeed
                raise OSError(errno.EIO, "Input/output error")
        for change in file.pending:
            _apply(file.durable, change)
        file.pending.clear()

    def fsync_folder(self, folder: Path) -> None:
        self._change()
        name = str(folder)
        for group in self._pending.get(name, ()):
            self._settle(group)
        self._pending[name] = []

    def unlink(self, path: Path) -> None:
        folder, name = _split(path)
        self._find(path)
        self._change()
        del self._entries(folder)[name]
        self._pending[folder].append([("unlink", folder, name, 0)])

    def replace(self, source: Path, target: Path) -> None:
        inode = self._find(source)
        self._change()
        (folder, old), (_, new) = _split(source), _split(target)
        entries = self._entries(folder)
        del entries[old]
        entries[new] = inode
        self._pending[folder].append([("link", folder, new, inode), ("unlink", folder, old, 0)])

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def make_folder(self, path: Path) -> None:
        folder, name = _split(path)
        if str(path) in self._folders:
            return
        self._change()
        self._entries(folder)[name] = 0
        self._folders[str(path)] = {}
        self._pending[str(path)] = []
        self._durable_folders.setdefault(str(path), {})
        self._pending[folder].append([("folder", folder, name, 0)])

    def names(self, folder: Path) -> list[str]:
        return list(self._entries(str(folder)))

    def exists(self, path: Path) -> bool:
        if str(path) in self._folders:
            return True
        folder, name = _split(path)
        return name in self._folders.get(folder, {})

    def size(self, path: Path) -> int:
        return len(self._files[self._find(path)].data)

    def inode(self, path: Path) -> int:
        return self._find(path)

    @contextmanager
    def load(self, path: Path) -> Iterator[bytes]:
        yield bytes(self._files[self._find(path)].data)

    def lock(self, folder: Path) -> _Held:
        self._entries(str(folder))
        return _Held()

    # what happens to it

    def reopen(self) -> None:
        """The process is gone, the machine lives: the page cache holds all that was written."""
        self._open.clear()
        self.dies_after = None

    def power_failure(self) -> None:
        """What is left is what was durable, and any part of the rest."""
        self.reopen()
        self.full = self.no_more_files = False
        for file in self._files.values():
            self._tear(file)
        for name in list(self._folders):
            self._forget_entries(name)
        self._drop_orphans()

    def rot(self, folder: Path, name: str) -> bool:
        """A bit of a durable file changes; whether there was one."""
        inode = self._folders.get(str(folder), {}).get(name, 0)
        file = self._files.get(inode)
        if file is None or not file.durable:
            return False
        at = self._random.randrange(len(file.durable) // 2, len(file.durable))
        file.durable[at] ^= 1 << self._random.randrange(8)
        file.data = bytearray(file.durable)
        file.pending.clear()
        return True

    def _tear(self, file: _File) -> None:
        if file.pending:
            for change in file.pending:
                lot = self._random.random()
                if lot < 0.45:
                    continue
                if lot < 0.75 or isinstance(change, int):
                    _apply(file.durable, change)
                else:
                    offset, data = change
                    _put(file.durable, offset, data[: self._random.randrange(len(data) + 1)])
            file.pending.clear()
        file.data = bytearray(file.durable)

    def _forget_entries(self, name: str) -> None:
        for group in self._pending.get(name, ()):
            if self._random.random() < 0.5:
                self._settle(group)
        self._pending[name] = []
        self._folders[name] = dict(self._durable_folders.get(name, {}))

    def _drop_orphans(self) -> None:
        """A folder whose entry was not durable is gone with all that is in it."""
        kept = {"/"}
        for name in sorted(self._folders):
            parent, child = _split(Path(name))
            if name != "/" and parent in kept and child in self._folders[parent]:
                kept.add(name)
        for name in [name for name in self._folders if name not in kept]:
            del self._folders[name], self._pending[name]
            self._durable_folders.pop(name, None)

    def _settle(self, group: list[_Entry]) -> None:
        for kind, folder, name, inode in group:
            entries = self._durable_folders.setdefault(folder, {})
            if kind == "unlink":
                entries.pop(name, None)
            else:
                entries[name] = inode

    # the rest

    def _change(self) -> None:
        """One more operation; the power may fail in its midst."""
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.dies_after = None
                raise Killed

    def _entries(self, folder: str) -> dict[str, int]:
        try:
            return self._folders[folder]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", folder) from None

    def _find(self, path: Path) -> int:
        folder, name = _split(path)
        try:
            return self._entries(folder)[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path)) from None

    def _descriptor(self, inode: int) -> int:
        self._next += 1
        self._open[self._next] = self._files[inode]
        return self._next

    def _file(self, descriptor: int) -> _File:
        try:
            return self._open[descriptor]
        except KeyError:
            raise OSError(errno.EBADF, "Bad file descriptor") from None


def _split(path: Path) -> tuple[str, str]:
    folder, _, name = str(path).rpartition("/")
    return folder or "/", name


def _put(target: bytearray, offset: int, data: bytes) -> None:
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def _cut(target: bytearray, length: int) -> None:
    if length <= len(target):
        del target[length:]
    else:
        target.extend(bytes(length - len(target)))


def _apply(target: bytearray, change: _Change) -> None:
    if isinstance(change, int):
        _cut(target, change)
    else:
        _put(target, *change)
