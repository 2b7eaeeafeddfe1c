"""A file layer that knows what a power failure would leave: only what was fsynced, and perhaps parts of the rest."""

from __future__ import annotations

import os
import random
from pathlib import Path

from pipeline.log.files import SystemFiles


class CrashFiles(SystemFiles):
    """Works on the real disk, and remembers per file what is durable, what was written since, and whether its entry in
    the folder is durable. `fail_fsync` and `full` inject errors."""

    def __init__(self) -> None:
        self.durable: dict[int, bytes] = {}
        self.pending: dict[int, list[tuple[int, bytes] | int]] = {}
        self.entries: set[str] = set()
        self.fail_fsync = 0
        self.full = False
        self.fsyncs = 0

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        inode = os.fstat(descriptor).st_ino
        self.durable[inode], self.pending[inode] = b"", []
        return descriptor

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        if self.full:
            super().write(descriptor, offset, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        super().write(descriptor, offset, data)
        self.pending.setdefault(os.fstat(descriptor).st_ino, []).append((offset, data))

    def truncate(self, descriptor: int, length: int) -> None:
        super().truncate(descriptor, length)
        self.pending.setdefault(os.fstat(descriptor).st_ino, []).append(length)

    def fsync(self, descriptor: int) -> None:
        self.fsyncs += 1
        if self.fail_fsync and self.fsyncs >= self.fail_fsync:
            raise OSError(5, "Input/output error")
        inode = os.fstat(descriptor).st_ino
        self.durable[inode] = os.pread(descriptor, 1 << 30, 0)
        self.pending[inode] = []

    def fsync_folder(self, folder: Path) -> None:
        self.entries |= {path.name for path in folder.iterdir() if path.is_file()}

    def power_off(self, folder: Path, target: Path, rng: random.Random) -> None:
        """Make `target` what the disk of `folder` could hold now."""
        target.mkdir()
        for path in folder.iterdir():
            if not path.is_file() or (path.name not in self.entries and rng.random() < 0.7):
                continue
            inode = path.stat().st_ino
            content = bytearray(self.durable.get(inode, path.read_bytes()))
            for change in self.pending.get(inode, []):
                if rng.random() < 0.5:
                    _apply(content, change, rng)
            (target / path.name).write_bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes] | int, rng: random.Random) -> None:
    if isinstance(change, int):
        del content[change:]
        return
    offset, data = change
    data = data[: rng.randrange(len(data) + 1)]
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data
