"""What an agent must remember of its lanes and sites, so that after a crash nothing that one site may have goes to
another. Pure; `save` and `load` at the end touch the disk.

Of each lane: spans, [first number, site]: numbers from there on belong to that site; and `below`: no number of the last
span from there on was ever handed to a call. Before a number is, `below` lies above it on the disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artimon.model.ranges import LaneId
from pipeline.wal.files import Files, LogError, SystemFiles, read_whole, write_whole

AHEAD = 256
"""Numbers by which `below` goes ahead of what is sent: the disk is written once for so many batches."""
FILE = "sites.json"


class RecordError(LogError):
    """The record cannot be read. The text says what to do."""


@dataclass(slots=True)
class LaneRecord:
    """Spans in ascending order of their first numbers."""

    spans: list[tuple[int, str]] = field(default_factory=list)
    below: int = 0

    def site_of(self, sequence: int) -> str | None:
        """The site that alone may have this number."""
        return next((site for first, site in reversed(self.spans) if first <= sequence), None)

    def free(self, sequence: int) -> bool:
        """No site can have it."""
        return bool(self.spans) and sequence >= max(self.below, self.spans[-1][0])

    def move(self, first: int, site: str) -> None:
        """Numbers from `first` on, none of which any site may have, belong to `site` now."""
        self.spans = [(start, name) for start, name in self.spans if start < first]
        if not self.spans or self.spans[-1][1] != site:
            self.spans.append((first, site))
        self.below = first

    def prune(self, oldest: int) -> None:
        """Numbers below `oldest` are acked: spans that hold only such are of no use."""
        while len(self.spans) > 1 and self.spans[1][0] <= oldest:
            del self.spans[0]


@dataclass(slots=True)
class Record:
    """All lanes. `version` counts changes that must be on the disk before the next call; `saved` is the one there."""

    lanes: dict[LaneId, LaneRecord] = field(default_factory=dict)
    version: int = 0
    saved: int = 0
    missing: bool = False
    """There was none on the disk: the log may be of a time without sites."""

    def to_json(self) -> bytes:
        lanes = {str(lane): {"spans": one.spans, "below": one.below} for lane, one in sorted(self.lanes.items())}
        return json.dumps({"format": 1, "lanes": lanes}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Record:
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
            raise ValueError(f"no record of sites: {error!r}") from error


def load(folder: Path, files: Files | None = None) -> Record:
    """The record in an agent's data folder, an empty one if there is none. Raises RecordError."""
    path = folder / FILE
    try:
        return Record.from_json(read_whole(files or SystemFiles(), path))
    except FileNotFoundError:
        return Record(missing=True)
    except ValueError as error:
        raise RecordError(
            f"{path}: {error}: put it back from a copy, or delete it: then all that waits stays with the first site"
        ) from error


def save(folder: Path, data: bytes, files: Files | None = None) -> None:
    """Durable when this returns. Raises OSError."""
    write_whole(files or SystemFiles(), folder / FILE, data)
