"""Delivery modes, and the kind of log that each one needs. docs/direct.md says what each mode survives."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pipeline.delivery.memory_files import MemoryFileSystem
from pipeline.wal.epoch import EPOCH_FILE, host_identity
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, ensure_folder, replace_file

UNLOGGED_MARKER = "unlogged"
"""File beside the segments that marks numbers missing in the log, so that the next start begins a new epoch."""
MEMORY_BYTES = 64 * 1024 * 1024
MEMORY_SEGMENT_BYTES = 4 * 1024 * 1024


class DeliveryMode(StrEnum):
    """Guarantee of an agent or a flow for what it has accepted."""

    END_TO_END = "end-to-end"
    """Kept on the local disk until it is acked, or until every sink has it durably."""
    DISK_FAILOVER = "disk-failover"
    """Durable at the next hop (a collector's broker, the sink), or on the local disk."""
    BEST_EFFORT = "best-effort"
    """Kept in memory."""


def log_folder(data: Path, delivery: DeliveryMode) -> Path:
    """Return the folder of the log. Best effort has an empty one of its own, so that an older log is left alone."""
    return data / ("memory" if delivery is DeliveryMode.BEST_EFFORT else "log")


def files_of_log(folder: Path, delivery: DeliveryMode) -> FileSystem | None:
    """Return the files that the log writes to; None for the disk."""
    return MemoryFileSystem(folder) if delivery is DeliveryMode.BEST_EFFORT else None


def prepare_log(folder: Path, delivery: DeliveryMode, files: FileSystem = LOCAL_FILE_SYSTEM) -> None:
    """Make sure that no number is given twice. With disk failover most batches bypass the log, so each start, and the
    first start in another mode, begins a new epoch. Raises OSError."""
    ensure_folder(files, folder)
    if delivery is DeliveryMode.DISK_FAILOVER:
        replace_file(files, folder / UNLOGGED_MARKER, host_identity().encode())
    if delivery is not DeliveryMode.BEST_EFFORT and files.exists(folder / UNLOGGED_MARKER):
        if files.exists(folder / EPOCH_FILE):
            files.unlink(folder / EPOCH_FILE)
        files.fsync_folder(folder)


def clear_marker(folder: Path, delivery: DeliveryMode, files: FileSystem = LOCAL_FILE_SYSTEM) -> None:
    """With end-to-end delivery remove the marker: the new epoch is on the disk. Raises OSError."""
    if delivery is DeliveryMode.END_TO_END and files.exists(folder / UNLOGGED_MARKER):
        files.unlink(folder / UNLOGGED_MARKER)
        files.fsync_folder(folder)
