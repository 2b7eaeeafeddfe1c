"""Delivery modes, and the kind of log that each one needs. docs/direct.md says what each mode survives."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pipeline.delivery.memory_files import MemoryFiles
from pipeline.wal.epoch import EPOCH_FILE, this_host
from pipeline.wal.files import SYSTEM_FILES, Files, ensure_folder, write_whole

UNLOGGED = "unlogged"
"""File beside the segments that marks numbers missing in the log, so that the next start begins a new epoch."""
MEMORY_BYTES = 64 * 1024 * 1024
MEMORY_SEGMENT = 4 * 1024 * 1024


class Delivery(StrEnum):
    """Guarantee of an agent or a flow for what it has accepted."""

    END_TO_END = "end-to-end"
    """Kept on the local disk until it is acked, or until every sink has it durably."""
    DISK_FAILOVER = "disk-failover"
    """Durable at the next hop (a collector's broker, the sink), or on the local disk."""
    BEST_EFFORT = "best-effort"
    """Kept in memory."""


def log_folder(data: Path, delivery: Delivery) -> Path:
    """Return the folder of the log. Best effort has an empty one of its own, so that an older log is left alone."""
    return data / ("memory" if delivery is Delivery.BEST_EFFORT else "log")


def log_files(folder: Path, delivery: Delivery) -> Files | None:
    """Return the files that the log writes to; None for the disk."""
    return MemoryFiles(folder) if delivery is Delivery.BEST_EFFORT else None


def before_open(folder: Path, delivery: Delivery, files: Files = SYSTEM_FILES) -> None:
    """Make sure that no number is given twice. With disk failover most batches bypass the log, so each start, and the
    first start in another mode, begins a new epoch. Raises OSError."""
    ensure_folder(files, folder)
    if delivery is Delivery.DISK_FAILOVER:
        write_whole(files, folder / UNLOGGED, this_host().encode())
    if delivery is not Delivery.BEST_EFFORT and files.exists(folder / UNLOGGED):
        if files.exists(folder / EPOCH_FILE):
            files.unlink(folder / EPOCH_FILE)
        files.fsync_folder(folder)


def after_open(folder: Path, delivery: Delivery, files: Files = SYSTEM_FILES) -> None:
    """With end-to-end delivery remove the marker: the new epoch is on the disk. Raises OSError."""
    if delivery is Delivery.END_TO_END and files.exists(folder / UNLOGGED):
        files.unlink(folder / UNLOGGED)
        files.fsync_folder(folder)
