"""What is promised for what was accepted, and how a log is opened for that. docs/direct.md says what each mode
survives."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pipeline.delivery.memory_files import MemoryFiles
from pipeline.wal.epoch import EPOCH_FILE, this_host
from pipeline.wal.files import SYSTEM_FILES, Files, ensure_folder, write_whole

UNLOGGED = "unlogged"
"""File beside the segments: numbers were given away that the log does not know; the next start begins a new epoch."""
MEMORY_BYTES = 64 * 1024 * 1024
MEMORY_SEGMENT = 4 * 1024 * 1024


class Delivery(StrEnum):
    """What an agent or a flow promises for what it has taken."""

    END_TO_END = "end-to-end"
    """It is on the disk here until it is acked, or every sink has it for good."""
    DISK_FAILOVER = "disk-failover"
    """The next one has it (a collector's broker, the sink), or the disk here."""
    BEST_EFFORT = "best-effort"
    """It is in memory."""


def log_folder(data: Path, delivery: Delivery) -> Path:
    """Where the log lies; that of best effort is empty, and apart, so that an older log is left alone."""
    return data / ("memory" if delivery is Delivery.BEST_EFFORT else "log")


def log_files(folder: Path, delivery: Delivery) -> Files | None:
    """What the log writes to; None: the disk."""
    return MemoryFiles(folder) if delivery is Delivery.BEST_EFFORT else None


def before_open(folder: Path, delivery: Delivery, files: Files = SYSTEM_FILES) -> None:
    """Make sure that no number is given twice: with disk failover most batches never were in the log, so each start,
    and the first one after it in another mode, begins a new epoch. Raises OSError."""
    ensure_folder(files, folder)
    if delivery is Delivery.DISK_FAILOVER:
        write_whole(files, folder / UNLOGGED, this_host().encode())
    if delivery is not Delivery.BEST_EFFORT and files.exists(folder / UNLOGGED):
        if files.exists(folder / EPOCH_FILE):
            files.unlink(folder / EPOCH_FILE)
        files.fsync_folder(folder)


def after_open(folder: Path, delivery: Delivery, files: Files = SYSTEM_FILES) -> None:
    """The new epoch is on the disk. Raises OSError."""
    if delivery is Delivery.END_TO_END and files.exists(folder / UNLOGGED):
        files.unlink(folder / UNLOGGED)
        files.fsync_folder(folder)
