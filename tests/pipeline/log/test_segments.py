"""Deletion of segments, and the possible states after a loss of power."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from pipeline.wal.recovery import segments_in
from pipeline.wal.segments import Segments
from tests.crash_disk import CrashDisk, PowerLoss, allow

FOLDER = Path("/log")
FULL = 5


def full_log() -> tuple[CrashDisk, Segments]:
    """Log of five full segments without needed records, and the active one."""
    disk = CrashDisk()
    disk.make_folder(FOLDER)
    disk.fsync_folder(FOLDER.parent)
    segments = Segments(disk, FOLDER, 0)
    for _ in range(FULL + 1):
        segments.create_next(7, [0])
    return disk, segments


@pytest.mark.parametrize("survived", range(2 * FULL))
def test_a_loss_of_power_restores_no_deleted_segment_without_the_later_ones(survived: int) -> None:
    for seed in range(20):
        disk, segments = full_log()
        operations = 0

        def off(_operation: str, _path: Path) -> None:
            nonlocal operations
            operations += 1
            if operations > survived:
                raise PowerLoss

        disk.before = off
        with pytest.raises(PowerLoss):
            segments.delete_done()
        disk.before = allow
        disk.power_off(random.Random(seed))
        left = segments_in(FOLDER, disk)
        assert left == list(range(min(left), FULL + 1)), f"seed {seed}"
        assert min(left) >= segments.deleted_below, f"seed {seed}"


def test_a_failed_deletion_leaves_the_earlier_segments_deleted() -> None:
    disk, segments = full_log()

    def refuse_the_third(operation: str, path: Path) -> None:
        if operation == "unlink" and segments.deleted_below == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    disk.before = refuse_the_third
    with pytest.raises(OSError, match="Input/output"):
        segments.delete_done()
    assert segments.segment_range == range(2, FULL + 1)
    assert segments_in(FOLDER, disk) == [2, 3, 4, 5]
    disk.before = allow
    assert segments.delete_done() == [2, 3, 4]
