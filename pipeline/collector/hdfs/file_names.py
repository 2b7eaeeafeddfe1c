"""File names of a collector that writes to HDFS itself. docs/formats/direct.md. Pure.

A *stream* is a sequence of bytes written by one process of a collector, offsets from 0 on, cut into files. Its name is
the `topic_id` of the positions that agents hold, and a position's offset is that of the last byte of a batch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

OPEN, DATA, ABORTED, SERIES = "open", "data", "aborted", "series"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_FINISHED = re.compile(r"(?P<stream>[A-Za-z0-9_-]+)\.(?P<base>\d{20})-(?P<end>\d{20})\.batches")
_UNFINISHED = re.compile(r"(?P<stream>[A-Za-z0-9_-]+)\.(?P<base>\d{20})\.(?P<attempt>\d+)\.(?P<scheme>roll|length)")


SERIES_SUFFIX = ".series"


class Scheme(StrEnum):
    """Condition for durable batches: their file is closed and renamed, or its durable length covers them."""

    ROLL = "roll"
    LENGTH = "length"


class FinishedName(NamedTuple):
    """Name of a closed file: bytes [base, end) of its stream, and perhaps an index behind them."""

    stream: str
    base: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.stream}.{self.base:020d}-{self.end:020d}.batches"


class UnfinishedName(NamedTuple):
    """Name of an unfinished file, which begins at byte `base` of its stream. `attempt`: after a creation with an
    unknown outcome the file is created again under another name, so that the two never collide."""

    stream: str
    base: int
    scheme: Scheme
    attempt: int = 1

    @property
    def name(self) -> str:
        return f"{self.stream}.{self.base:020d}.{self.attempt}.{self.scheme}"

    @property
    def path(self) -> str:
        """Path relative to the folder of the collectors."""
        return f"{OPEN}/{self.name}"


def stream_name(collector: str, now_ms: int, random: int) -> str:
    """Return the name of a new stream: never given twice, ordered by time for one collector."""
    return f"{_UNSAFE.sub('_', collector)[:60]}-{now_ms:012x}-{random & 0xFFFFFFFF:08x}"


def series_path(stream: str, number: int) -> str:
    """Return the path, relative to the folder, of announcements until they are closed."""
    return f"{OPEN}/{series_name(stream, number)}{SERIES_SUFFIX}"


def series_name(stream: str, number: int) -> str:
    """Return the name of a file of announcements."""
    return f"{stream}-s{number:06d}"


def series_stream(path: str) -> str:
    """Return the stream of a `series_path`."""
    return path.rsplit("/", 1)[-1].removesuffix(SERIES_SUFFIX).rsplit("-s", 1)[0]


def parse_finished(path: str) -> FinishedName | None:
    """Parse a path or name; None for any other file."""
    match = _FINISHED.fullmatch(path.rsplit("/", 1)[-1])
    return FinishedName(match["stream"], int(match["base"]), int(match["end"])) if match else None


def parse_unfinished(path: str) -> UnfinishedName | None:
    """Parse a path or name; None for any other file."""
    match = _UNFINISHED.fullmatch(path.rsplit("/", 1)[-1])
    if match is None:
        return None
    return UnfinishedName(match["stream"], int(match["base"]), Scheme(match["scheme"]), int(match["attempt"]))


def finished_path(file: FinishedName, opened_ms: int) -> str:
    """Return the path relative to the folder: by the hour (UTC) in which the file was begun."""
    return f"{DATA}/{hour_of(opened_ms)}/{file.name}"


def hour_of(ms: int) -> str:
    """Format a time as 2026-11-21T13."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H")
