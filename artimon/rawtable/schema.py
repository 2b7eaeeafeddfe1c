"""Columns of the tables, their locations on HDFS, their data files, and the periods that partition them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction

from artimon.model.value_traits import VALUE_FIELDS

PARTITION_BY = ["period", "keep"]
PROPERTIES = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
"""Properties of the raw table. Checkpoints list no removed files: the process that removes a file tracks and deletes
it."""
STAMP = pa.timestamp("us", tz="UTC")
FILE_SCHEMA = pa.schema(
    [
        ("source", pa.int32()),
        ("series", pa.int64()),
        ("time", STAMP),
        ("birth", STAMP),
        ("future", pa.bool_()),
        *VALUE_FIELDS,
    ]
)
"""Columns inside the data files; `period` and `keep` are partition values."""
RAW_SCHEMA = pa.schema([("period", pa.utf8()), ("keep", pa.utf8()), *FILE_SCHEMA])
SOURCES_SCHEMA = pa.schema([("id", pa.int32()), ("source", pa.utf8())])

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
_HOUR, _DAY = "%Y-%m-%dT%H", "%Y-%m-%d"


class TableError(RuntimeError):
    """A table cannot be read or written, or lacks required data. The text names the table and the reason."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """Closed data file. `path` is relative to the table; `stats` is Delta's JSON of statistics."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    stats: str

    def action(self, data_change: bool = True) -> AddAction:
        """Return the action that adds it in a commit; `data_change` False: its rows were in the table already."""
        return AddAction(self.path, self.size, self.partition, 0, data_change, self.stats)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """File of the newest version of the table. `path` is relative to the table."""

    path: str
    size: int
    rows: int
    period: str
    keep: str

    @property
    def compacted(self) -> bool:
        """True if compaction wrote it."""
        return is_compacted(self.path)

    def removal(self, data_change: bool, now_ms: int) -> RemoveAction:
        """Return the action that removes it in a commit; `data_change` False: its rows stay in the table."""
        partition: dict[str, str | None] = {"period": self.period, "keep": self.keep}
        return RemoveAction(self.path, data_change, now_ms, self.size, partition)


def is_compacted(path: str) -> bool:
    """True if compaction wrote this file, by its name."""
    return path.rsplit("/", 1)[-1].startswith(("hour-", "day-"))


def folder_of(period: str, keep: str) -> str:
    """Return the folder of a file, relative to the table. It is informative only: the log has the partition values."""
    plain = keep if keep.isascii() and keep.replace("-", "").replace("_", "").isalnum() and len(keep) <= 64 else "other"
    return f"period={period}/keep={plain}"


def raw_uri(hdfs: str) -> str:
    """Return the URI of the raw table on the file system `hdfs`."""
    return hdfs.rstrip("/") + "/artimon/raw"


def sources_uri(hdfs: str) -> str:
    """Return the URI of the table of sources."""
    return hdfs.rstrip("/") + "/artimon/sources"


def series_uri(hdfs: str) -> str:
    """Return the URI of the table of series."""
    return hdfs.rstrip("/") + "/artimon/series"


def period_of(append_ms: int) -> str:
    """Return the hour of an append time, UTC: 2026-11-21T13."""
    return datetime.fromtimestamp(append_ms / 1000, UTC).strftime(_HOUR)


def is_hour(period: str) -> bool:
    """True for an hour, False for a day."""
    return "T" in period


def day_of(period: str) -> str:
    """Return the day of a period: 2026-11-21T13 -> 2026-11-21; a day is returned as is."""
    return period.split("T")[0]


def bounds_of(period: str) -> tuple[int, int]:
    """Return [start, end) of an hour or a day in epoch ms. Raises ValueError for other text."""
    hour = is_hour(period)
    start = datetime.strptime(period, _HOUR if hour else _DAY).replace(tzinfo=UTC)
    end = start + (timedelta(hours=1) if hour else timedelta(days=1))
    return round(start.timestamp() * 1000), round(end.timestamp() * 1000)


def end_ms(period: str) -> int:
    """Return the end of a period (exclusive) in epoch ms. Raises ValueError for other text."""
    return bounds_of(period)[1]
