"""Disk of a simulated machine: tests.crash_disk with the faults that a run plans."""

from __future__ import annotations

import errno
import random
from pathlib import Path

from tests.crash_disk import CrashDisk
from tests.simulation.scheduler import Killed


class SimDisk(CrashDisk):
    """Disk of one machine. Every choice comes from `chance`."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(self._fault)
        self._random = chance
        self.dies_after: int | None = None
        """Changes that still happen before the power fails."""
        self.fails_after: int | None = None
        """Fsyncs that still succeed before one fails."""
        self.no_more_files = False
        """Open files can be written, but none can be created."""

    def kill(self) -> None:
        super().kill()
        self.dies_after = None

    def power_failure(self) -> None:
        """Turn the machine off and on; a disk that was full has room again."""
        self.full = self.no_more_files = False
        self.power_off(self._random)

    def rot(self, path: Path) -> bool:
        """Change a bit of a durable file; False if there is none."""
        if not self.exists(path):
            return False
        file = self.file(path)
        if not file.durable:
            return False
        file.data = bytearray(file.durable)
        file.pending.clear()
        at = self._random.randrange(len(file.durable) // 2, len(file.durable))
        file.flip(at, 1 << self._random.randrange(8))
        return True

    def _fault(self, operation: str, _path: Path) -> None:
        if operation == "create" and self.no_more_files:
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.dies_after = None
                raise Killed
        if operation == "fsync" and self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                self.fails_after = None
                raise OSError(errno.EIO, "Input/output error")
