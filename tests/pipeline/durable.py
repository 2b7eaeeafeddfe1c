"""Durable state of the real disk: files and folder entries that were fsynced as they are now."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

UNIMPORTANT = {"lock"}
"""Files whose content and entry nobody needs after a crash."""


class Durable:
    """Remembers the content (size and time) and the entries that each fsync of this process has made durable."""

    def __init__(self) -> None:
        self._content: dict[int, tuple[int, int]] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self.fsyncs = 0

    @classmethod
    @contextmanager
    def watched(cls) -> Iterator[Durable]:
        """Record every fsync inside the block."""
        found = cls()
        with mock.patch.object(os, "fsync", found.fsync):
            yield found

    def fsync(self, descriptor: int) -> None:
        """Replacement of os.fsync."""
        self.fsyncs += 1
        about = os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            self._entries[about.st_ino] = _names(Path(f"/proc/self/fd/{descriptor}"))
        else:
            self._content[about.st_ino] = about.st_size, about.st_mtime_ns

    def fsync_path(self, folder: Path) -> None:
        """Record an fsync of this folder without calling one."""
        self._entries[folder.stat().st_ino] = _names(folder)

    def lacking(self, folder: Path) -> list[str]:
        """Changes of this folder that a loss of power could undo; empty if all of it is durable."""
        found: list[str] = []
        here, durable = _names(folder), self._entries.get(folder.stat().st_ino, {})
        found += [f"entry {folder / name}" for name, inode in here.items() if durable.get(name) != inode]
        found += [f"removal of {folder / name}" for name in durable if name not in here]
        for name in here:
            path = folder / name
            about = path.stat()
            if path.is_dir():
                found += self.lacking(path)
            elif self._content.get(about.st_ino) != (about.st_size, about.st_mtime_ns):
                found.append(f"content of {path}")
        return found


def _names(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder) if entry.name not in UNIMPORTANT}
