"""What an agent promises for what it was given, and how its log is opened for that. docs/direct.md says what each mode
survives."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pipeline.delivery.memory import MemoryFiles
from pipeline.log.epoch import this_host
from pipeline.log.files import SYSTEM_FILES, Files, ensure_folder, write_whole

UNLOGGED = "unlogged"
"""File beside the segments: numbers were given away that the log does not know; the next start begins a new epoch."""
MEMORY_BYTES = 64 * 1024 * 1024
MEMORY_SEGMENT = 4 * 1024 * 1024


class Delivery(StrEnum):
    """End to end: accepted is on the disk, forgotten when acked. Disk failover: accepted is with a collector's broker,
    or on the disk. Best effort: accepted is in memory."""

    END_TO_END = "end-to-end"
    DISK_FAILOVER = "disk-failover"
    BEST_EFFORT = "best-effort"


def log_folder(data: Path, delivery: Delivery) -> Path:
    """Where the log lies; that of best effort is empty, and apart, so that an older log is left alone."""
    return data / ("memory" if delivery is Delivery.BEST_EFFORT else "log")


def log_files(folder: Path, delivery: Delivery) -> Files | None:
    """What the log writes to; None: the disk."""
    return MemoryFiles(folder) if delivery is Delivery.BEST_EFFORT else None


def before_open(folder: Path, delivery: Delivery) -> None:
    """Make sure that no number is given twice: with disk failover most batches never were in the log, so each start,
    and the first one after it in another mode, begins a new epoch. Raises OSError."""
    ensure_folder(SYSTEM_FILES, folder)
    if delivery is Delivery.DISK_FAILOVER:
        write_whole(SYSTEM_FILES, folder / UNLOGGED, this_host().encode())
    if delivery is not Delivery.BEST_EFFORT and (folder / UNLOGGED).exists():
        (folder / "epoch").unlink(missing_ok=True)
        SYSTEM_FILES.fsync_folder(folder)


def after_open(folder: Path, delivery: Delivery) -> None:
    """The new epoch is on the disk. Raises OSError."""
    if delivery is Delivery.END_TO_END and (folder / UNLOGGED).exists():
        (folder / UNLOGGED).unlink()
        SYSTEM_FILES.fsync_folder(folder)
