"""Identities that a channel has accepted, so that repeats after a lost reply are dropped. Kept in a small file of their
own, since the log deletes delivered batches."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from artimon.model.batch import NO_LANE, BatchId
from artimon.model.ranges import LaneId, LaneRanges
from pipeline.wal.file_system import FileSystem, read_file, replace_file

log = logging.getLogger(__name__)

MAX_LANES = 10_000
MAX_SILENT_MS = 90 * 24 * 3_600_000
"""Milliseconds of silence after which a lane is forgotten: 90 days, as in the stores."""


@dataclass(slots=True)
class AcceptedIds:
    """Accepted numbers and the time of the newest one (epoch ms), per lane. Not thread-safe.

    Announcements share one identity and are never repeats."""

    lanes: LaneRanges = field(default_factory=LaneRanges)
    last_ms: dict[LaneId, int] = field(default_factory=dict)

    def has(self, id: BatchId) -> bool:
        return id.lane != NO_LANE and self.lanes.contains(id.lane_id, id.sequence)

    def add(self, id: BatchId, now_ms: int) -> None:
        if id.lane != NO_LANE:
            self.lanes.add(id.lane_id, id.sequence)
            self.last_ms[id.lane_id] = now_ms

    def add_all(self, lanes: LaneRanges, now_ms: int) -> None:
        """Add accepted numbers."""
        self.lanes.update(lanes)
        for lane in lanes.lanes():
            self.last_ms.setdefault(lane, now_ms)

    def forget_silent(self, now_ms: int, most: int = MAX_LANES) -> list[LaneId]:
        """Forget lanes silent for 90 days, and the most silent ones beyond `most`; return them."""
        ranked = sorted(self.last_ms, key=lambda lane: -self.last_ms[lane])
        silent = [*ranked[most:], *(x for x in ranked[:most] if self.last_ms[x] < now_ms - MAX_SILENT_MS)]
        for lane in silent:
            self.lanes.forget(lane)
            del self.last_ms[lane]
        return silent

    def limit_size(self, now_ms: int) -> list[LaneId]:
        """Call after each addition: beyond MOST_LANES forget a tenth at once, so that this is rare."""
        if len(self.last_ms) <= MAX_LANES:
            return []
        return self.forget_silent(now_ms, MAX_LANES * 9 // 10)

    def encode(self) -> bytes:
        """Return JSON behind a line with its xxh3-128."""
        body = {"lanes": self.lanes.to_json(), "last_ms": {str(lane): ms for lane, ms in self.last_ms.items()}}
        text = json.dumps(body, separators=(",", ":")).encode()
        return xxhash.xxh3_128_hexdigest(text).encode() + b"\n" + text

    @classmethod
    def decode(cls, data: bytes) -> AcceptedIds:
        """Inverse of `encode`; raises ValueError for anything else."""
        digest, _, text = data.partition(b"\n")
        if xxhash.xxh3_128_hexdigest(text).encode() != digest:
            raise ValueError("the digest is wrong")
        try:
            body = json.loads(text)
            last_ms = {LaneId.parse(lane): int(ms) for lane, ms in body["last_ms"].items()}
            return cls(LaneRanges.from_json(body["lanes"]), last_ms)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not what this program writes: {error!r}") from error


class AcceptedIdsFile:
    """File of a Seen, which outlives the segments of the log. Written whole, fsynced, renamed, the folder fsynced."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files, self._path = files, path
        self.problem = ""
        """Reason for which an existing file could not be used."""

    def load(self) -> AcceptedIds:
        """Read the file; empty if there is none, or if it is damaged (then it is renamed and `problem` set)."""
        if not self._files.exists(self._path):
            return AcceptedIds()
        try:
            return AcceptedIds.decode(read_file(self._files, self._path))
        except ValueError as error:
            aside = self._path.with_name(self._path.name + ".damaged")
            self._files.replace(self._path, aside)
            self.problem = f"{self._path} could not be read ({error}) and was renamed: repeats of old batches may pass"
            log.error("%s", self.problem)
            return AcceptedIds()

    def save(self, seen: AcceptedIds) -> None:
        """Durable when this returns. Raises OSError."""
        replace_file(self._files, self._path, seen.encode())
