"""Shares of files of the raw table: adjacent row groups, for one thread, read by one request to HDFS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artimon.rawtable.parquet_reader import GroupReader, OpenFiles
from query_dsl.stores.history.file_pruning import BOUNDS, RawFile, RowFilter

SHARE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of one request: of a larger row group, values are fetched only if keys match."""
SHARE_ROWS = 2**20
"""Maximum rows of a share: gives every thread work even if millions of rows take few bytes."""


@dataclass(frozen=True, slots=True)
class Share:
    """Adjacent row groups of a file. `size` is its part of the bytes of all files, for progress."""

    reader: GroupReader
    groups: tuple[int, ...]
    size: int

    def prefetch(self) -> None:
        """Fetch it, unless it exceeds SHARE_BYTES."""
        if sum(self.reader.size(group) for group in self.groups) <= SHARE_BYTES:
            self.reader.prefetch(self.groups)


def shares_of(uri: str, file: RawFile, wanted: RowFilter, opened: OpenFiles | None = None) -> list[Share]:
    """Return shares that cover all row groups which may hold a wanted row; threads may read one each. `opened`: files
    that stay open. Raises OSError, TableError."""
    first = opened.reader(uri, file.size) if opened is not None else GroupReader(uri, size=file.size)
    runs = _neighbours(first, [group for group in range(first.groups) if _may_hold(first, group, wanted)])
    counted = [sum(first.size(group) for group in groups) for groups in runs[1:]]
    readers = [first, *(GroupReader(uri, first) for _ in runs[1:])]
    sizes = [file.size - sum(counted), *counted]
    return [Share(*share) for share in zip(readers, map(tuple, runs), sizes, strict=False)]


def _may_hold(reader: GroupReader, group: int, wanted: RowFilter) -> bool:
    bounds = reader.bounds(group, BOUNDS)
    if len(bounds) < len(BOUNDS):
        return True
    least, most = ([bounds[name][side] for name in BOUNDS] for side in (0, 1))
    return wanted.may_hold(least, most)


def _neighbours(reader: GroupReader, groups: Sequence[int]) -> list[list[int]]:
    """Split into runs of adjacent groups, each within the limits of a share."""
    runs: list[list[int]] = []
    size = rows = 0
    for group in groups:
        size, rows = size + reader.size(group), rows + reader.rows(group)
        if not runs or group != runs[-1][-1] + 1 or size > SHARE_BYTES or rows > SHARE_ROWS:
            runs.append([])
            size, rows = reader.size(group), reader.rows(group)
        runs[-1].append(group)
    return runs
