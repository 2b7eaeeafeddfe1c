"""Names and places of the files of a collector that writes HDFS itself. docs/formats/direct.md. Pure.

A *stream* is what one life of one collector writes: bytes with offsets from 0 on, cut into files. Its name is the
`topic_id` of the positions that agents hold, and a position's offset is that of the last byte of a batch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

OPEN, DATA, ABORTED, SERIES = "open", "data", "aborted", "series"
_WORD = re.compile(r"[^A-Za-z0-9_-]+")
_FINAL = re.compile(r"(?P<stream>[A-Za-z0-9_-]+)\.(?P<base>\d{20})-(?P<end>\d{20})\.batches")
_UNDER_WAY = re.compile(r"(?P<stream>[A-Za-z0-9_-]+)\.(?P<base>\d{20})\.(?P<attempt>\d+)\.(?P<scheme>roll|length)")


SERIES_SUFFIX = ".series"


class Scheme(StrEnum):
    """When a batch is durable: once its file is closed and renamed, or once the file's durable length covers it."""

    ROLL = "roll"
    LENGTH = "length"


class Final(NamedTuple):
    """A file that is closed: bytes [base, end) of its stream, and perhaps an index behind them."""

    stream: str
    base: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.stream}.{self.base:020d}-{self.end:020d}.batches"


class UnderWay(NamedTuple):
    """A file that is being written, or was when its writer ended; it begins at byte `base` of its stream. `attempt`: a
    file whose making had no clear outcome is made anew under another name, so that the two never meet."""

    stream: str
    base: int
    scheme: Scheme
    attempt: int = 1

    @property
    def name(self) -> str:
        return f"{self.stream}.{self.base:020d}.{self.attempt}.{self.scheme}"

    @property
    def path(self) -> str:
        """Relative to the folder of the collectors."""
        return f"{OPEN}/{self.name}"


def stream_name(collector: str, now_ms: int, random: int) -> str:
    """The name of a new stream: never given twice, ordered by time for one collector."""
    return f"{_WORD.sub('_', collector)[:60]}-{now_ms:012x}-{random & 0xFFFFFFFF:08x}"


def series_path(stream: str, number: int) -> str:
    """Where announcements are written until they are closed, relative to the folder."""
    return f"{OPEN}/{series_name(stream, number)}{SERIES_SUFFIX}"


def series_name(stream: str, number: int) -> str:
    """Of a file of announcements."""
    return f"{stream}-s{number:06d}"


def series_stream(path: str) -> str:
    """The stream of a `series_path`."""
    return path.rsplit("/", 1)[-1].removesuffix(SERIES_SUFFIX).rsplit("-s", 1)[0]


def parse_final(path: str) -> Final | None:
    """From a path or name; None for any other file."""
    match = _FINAL.fullmatch(path.rsplit("/", 1)[-1])
    return Final(match["stream"], int(match["base"]), int(match["end"])) if match else None


def parse_under_way(path: str) -> UnderWay | None:
    """From a path or name; None for any other file."""
    match = _UNDER_WAY.fullmatch(path.rsplit("/", 1)[-1])
    if match is None:
        return None
    return UnderWay(match["stream"], int(match["base"]), Scheme(match["scheme"]), int(match["attempt"]))


def final_path(file: Final, opened_ms: int) -> str:
    """Relative to the folder: by the hour (UTC) in which the file was begun."""
    return f"{DATA}/{hour_of(opened_ms)}/{file.name}"


def hour_of(ms: int) -> str:
    """2026-11-21T13."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H")
