"""The table of roll-ups: one data file per level and raw file, whose name contains that of the raw file. Beside it,
month files: copies of the roll-ups of 1 d of a month, or of ten days of it, in one file.

docs/formats/rollups.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash
from deltalake import PostCommitHookProperties
from deltalake.transaction import RemoveAction

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.rawtable.commit import FileSuperseded, MaintainedTable
from artimon.rawtable.delta import files_of
from artimon.rawtable.rollup_rows import ROLLUP_FILE_SCHEMA
from artimon.rawtable.schema import DAY_MS, DataFile, folder_of
from artimon.runtime import file_access as files

LEVELS_MS = (300_000, 3_600_000, 86_400_000)
"""Steps of the levels, finest first; each divides the next."""
PARTITION_BY = ["level", "period", "keep"]
ROLLUP_SCHEMA = pa.schema([("level", pa.utf8()), ("period", pa.utf8()), ("keep", pa.utf8()), *ROLLUP_FILE_SCHEMA])
PROPERTIES = {"delta.deletedFileRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "10"}
"""As for the raw table: the compactor deletes removed files itself. A checkpoint each ten commits, which are days: a
reader that opens the table reads it and at most nine commits, not up to 99."""
MONTHS_FOLDER = f"level={DAY_MS // 1000}/months"
"""Folder of the month files, relative to the table. No commit names them."""
DAY_ROWS = 1 << 14
"""Average rows of the files that a month file copies, at most. In larger ones decoding exceeds their fixed cost."""


def rollups_uri(hdfs: str) -> str:
    """Return the URI of the table of roll-ups on the file system `hdfs`."""
    return hdfs.rstrip("/") + "/artimon/rollups"


@dataclass(frozen=True, slots=True)
class RollupFile:
    """File of the newest version of the table. `path` is relative to the table."""

    path: str
    size: int
    rows: int
    level_ms: int
    period: str
    keep: str

    @property
    def raw_name(self) -> str:
        """Name of the raw file that it was made of, without folder and suffix."""
        return raw_name_of(self.path)

    def removal(self, data_change: bool, now_ms: int) -> RemoveAction:
        """Return the action that removes it in a commit."""
        partition: dict[str, str | None] = {**partition_of(self.level_ms, self.period, self.keep)}
        return RemoveAction(self.path, data_change, now_ms, self.size, partition)


def partition_of(level_ms: int, period: str, keep: str) -> dict[str, str]:
    """Return the partition values of a file. The level is in seconds."""
    return {"level": str(level_ms // 1000), "period": period, "keep": keep}


def rollup_folder(level_ms: int, period: str, keep: str) -> str:
    """Return the folder of a file, relative to the table."""
    return f"level={level_ms // 1000}/{folder_of(period, keep)}"


def stem_of(path: str) -> str:
    """Return the name of a file without folder and suffix."""
    return path.rsplit("/", 1)[-1].removesuffix(".parquet")


def raw_name_of(path: str) -> str:
    """Return the stem of the raw file in the path of a roll-up, which is RAW STEM-UUID.parquet."""
    return stem_of(path).rpartition("-")[0]


def rollup_files(table: Any) -> list[RollupFile]:
    """Return the live files of an open DeltaTable."""
    names = ("path", "size_bytes", "num_records", "partition.level", "partition.period", "partition.keep")
    return [_file_of(row) for row in files_of(table, *names)]


def _file_of(row: tuple[Any, ...]) -> RollupFile:
    path, size, rows, level, period, keep = row
    return RollupFile(path, size, rows, int(level) * 1000, period, keep)


def month_files(rollups: Iterable[RollupFile]) -> dict[str, list[RollupFile]]:
    """Return the roll-ups of 1 d that a month file could copy, by its path: of each month and then of each ten days of
    it, of each class, if they are several and small. The path has a digest of theirs: a file that exists is a copy of
    exactly these."""
    spans: dict[tuple[str, str], list[RollupFile]] = {}
    for file in rollups:
        if file.level_ms == DAY_MS:
            for span in (file.period[:7], file.period[:9]):
                spans.setdefault((span, file.keep), []).append(file)
    return {
        f"{MONTHS_FOLDER}/{span}-{_digest_of(days)}.parquet": days
        for (span, _), days in spans.items()
        if len(days) > 1 and 0 < sum(file.rows for file in days) <= len(days) * DAY_ROWS
    }


def _digest_of(days: Iterable[RollupFile]) -> str:
    return xxhash.xxh3_128_hexdigest("\n".join(sorted(file.path for file in days)).encode())


def existing_months(uri: str) -> dict[str, int]:
    """Return path and size of every month file of the table at `uri` that exists. Raises OSError."""
    try:
        found = files.list_files(f"{uri}/{MONTHS_FOLDER}")
    except FileNotFoundError:
        return {}
    return {f"{MONTHS_FOLDER}/{name}": size for name, size, _ in found}


def span_of(path: str) -> str:
    """Return the beginning of the days in a month file: 2026-11, or 2026-11-2 for those from the 20th to the 29th."""
    return raw_name_of(path)


class RollupTable(MaintainedTable[RollupFile]):
    """The table for the compactor: live files, and commits that add and remove some. With `made` it is created if
    absent."""

    # no commit carries a state that later ones need: Delta deletes those older than 30 days
    _hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK, made: bool = True) -> None:
        super().__init__(rollups_uri(hdfs), ROLLUP_SCHEMA, PARTITION_BY, PROPERTIES, made, clock)

    def live(self) -> list[RollupFile]:
        return rollup_files(self._opened())

    def stored_bytes(self) -> int:
        """Return the bytes of the live files and of the month files. Raises OSError."""
        return sum(file.size for file in self.live()) + sum(existing_months(self.uri).values())

    def change(self, old: Sequence[RollupFile], new: Sequence[DataFile], note: dict[str, Any], began: float) -> int:
        """Remove those of `old` that are live and add `new` in one commit; return its version.

        Raises FileSuperseded if another file is a roll-up of the same raw file and level, TableError if the outcome is
        uncertain or the files are too old to commit."""
        wanted = {(file.path.partition("/")[0], raw_name_of(file.path)) for file in new}
        added, removed = {file.path for file in new}, {file.path for file in old}

        def check(live: set[str]) -> bool:
            if added <= live and not live & removed:
                return True
            for path in live - removed - added if wanted else ():
                if (path.partition("/")[0], raw_name_of(path)) in wanted:
                    raise FileSuperseded(f"{self.uri}: {path} is a roll-up of the same raw file")
            self._check_age(began, bool(new))
            return False

        self.refresh()
        held = self._live_paths()
        gone = [file for file in old if file.path in held]
        version = self._commit_once(check, self._actions(gone, new, data_change=True), note)
        self._removed |= {file.path for file in gone}
        return version
