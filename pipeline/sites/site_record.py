"""Persistent state of an agent's lanes and sites: it keeps a batch from a second site after a crash. Pure; only
`save_record` and `load_record` at the end touch the disk.

Each lane has spans [first sequence, site]: sequences from the first one on belong to that site. Sequences from `below`
on were never part of a call. Before a sequence is sent, a `below` above it is on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artimon.model.ranges import LaneId
from pipeline.wal.file_system import FileSystem, LocalFileSystem, LogError, read_file, replace_file

RESERVED_AHEAD = 256
"""Sequences by which `below` runs ahead of those sent: one write to the disk covers this many batches."""
RECORD_FILE = "sites.json"


class SiteRecordError(LogError):
    """The record cannot be read. The text gives the remedy."""


@dataclass(slots=True)
class LaneRecord:
    """Spans in ascending order of their first sequences."""

    spans: list[tuple[int, str]] = field(default_factory=list)
    unsent_from: int = 0

    def site_of(self, sequence: int) -> str | None:
        """Return the only site that may have this sequence."""
        return next((site for first, site in reversed(self.spans) if first <= sequence), None)

    def is_unassigned(self, sequence: int) -> bool:
        """Return True if no site can have this sequence."""
        return bool(self.spans) and sequence >= max(self.unsent_from, self.spans[-1][0])

    def move(self, first: int, site: str) -> None:
        """Assign the sequences from `first` on, which no site may have yet, to `site`."""
        self.spans = [(start, name) for start, name in self.spans if start < first]
        if not self.spans or self.spans[-1][1] != site:
            self.spans.append((first, site))
        self.unsent_from = first

    def prune(self, oldest: int) -> None:
        """Drop spans whose sequences are all below `oldest`, so that no later start finds a batch of them."""
        while len(self.spans) > 1 and self.spans[1][0] <= oldest:
            del self.spans[0]


@dataclass(slots=True)
class SiteRecord:
    """All lanes. `version` counts changes that must be on disk before the next call; `saved`: the version there."""

    lanes: dict[LaneId, LaneRecord] = field(default_factory=dict)
    """Lanes of former epochs stay: segments of a log that are put back may hold their batches."""
    version: int = 0
    saved: int = 0
    is_new: bool = False
    """True if the disk held no record: the log may be older than the use of sites."""

    def to_json(self) -> bytes:
        lanes = {str(lane): {"spans": one.spans, "below": one.unsent_from} for lane, one in sorted(self.lanes.items())}
        return json.dumps({"format": 1, "lanes": lanes}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> SiteRecord:
        """Inverse of `to_json`. Raises ValueError."""
        try:
            parsed: dict[str, Any] = json.loads(data)
            if parsed["format"] != 1:
                raise ValueError(f"format {parsed['format']}")
            lanes = {}
            for text, one in parsed["lanes"].items():
                spans = [(int(first), str(site)) for first, site in one["spans"]]
                lanes[LaneId.parse(text)] = LaneRecord(spans, int(one["below"]))
            return cls(lanes)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a record of sites: {error!r}") from error


def load_record(folder: Path, files: FileSystem | None = None) -> SiteRecord:
    """Load the record of an agent's data folder, an empty one if it has none. Raises SiteRecordError."""
    path = folder / RECORD_FILE
    try:
        return SiteRecord.from_json(read_file(files or LocalFileSystem(), path))
    except FileNotFoundError:
        return SiteRecord(is_new=True)
    except ValueError as error:
        raise SiteRecordError(
            f"{path}: {error}: restore it from a copy, or delete it: then all waiting batches stay with the first site"
        ) from error


def save_record(folder: Path, data: bytes, files: FileSystem | None = None) -> None:
    """Save a record; durable when this returns. Raises OSError."""
    replace_file(files or LocalFileSystem(), folder / RECORD_FILE, data)
