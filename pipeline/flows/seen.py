"""Which identities a channel has had: what comes again after a lost reply is dropped. Kept in one small file, since the
log forgets what nobody waits for."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from artimon.model.batch import NO_LANE, BatchId
from artimon.model.ranges import LaneId, LaneRanges
from pipeline.wal.files import Files, read_whole, write_whole

log = logging.getLogger(__name__)

MOST_LANES = 10_000
FORGET_MS = 90 * 24 * 3_600_000
"""A lane that was silent for so long is forgotten, as everywhere."""


@dataclass(slots=True)
class Seen:
    """Numbers had, per lane, and when each lane last brought one (epoch ms). Not thread-safe.

    Announcements have no identity of their own: they are never repeats."""

    lanes: LaneRanges = field(default_factory=LaneRanges)
    last_ms: dict[LaneId, int] = field(default_factory=dict)

    def had(self, id: BatchId) -> bool:
        return id.lane != NO_LANE and self.lanes.seen(id.lane_id, id.sequence)

    def add(self, id: BatchId, now_ms: int) -> None:
        if id.lane != NO_LANE:
            self.lanes.add(id.lane_id, id.sequence)
            self.last_ms[id.lane_id] = now_ms

    def update(self, lanes: LaneRanges, now_ms: int) -> None:
        """These have been had too."""
        self.lanes.update(lanes)
        for lane in lanes.lanes():
            self.last_ms.setdefault(lane, now_ms)

    def forget_silent(self, now_ms: int, most: int = MOST_LANES) -> list[LaneId]:
        """Lanes that have been silent for 90 days, and the most silent ones beyond `most`; which."""
        ranked = sorted(self.last_ms, key=lambda lane: -self.last_ms[lane])
        silent = [*ranked[most:], *(x for x in ranked[:most] if self.last_ms[x] < now_ms - FORGET_MS)]
        for lane in silent:
            self.lanes.forget(lane)
            del self.last_ms[lane]
        return silent

    def stay_small(self, now_ms: int) -> list[LaneId]:
        """Called after each addition: beyond MOST_LANES a tenth goes at once, so that this is rare; which."""
        if len(self.last_ms) <= MOST_LANES:
            return []
        return self.forget_silent(now_ms, MOST_LANES * 9 // 10)

    def encode(self) -> bytes:
        """JSON, behind a line with its xxh3-128."""
        body = {"lanes": self.lanes.to_json(), "last_ms": {str(lane): ms for lane, ms in self.last_ms.items()}}
        text = json.dumps(body, separators=(",", ":")).encode()
        return xxhash.xxh3_128_hexdigest(text).encode() + b"\n" + text

    @classmethod
    def decode(cls, data: bytes) -> Seen:
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


class SeenFile:
    """Where a Seen outlives its segments. Written whole, fsynced, renamed, the folder fsynced."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self._path = files, path
        self.problem = ""
        """Why what stood there could not be used."""

    def load(self) -> Seen:
        """What stands there; an empty one if there is nothing, or nothing that can be read (which is set aside)."""
        if not self._files.exists(self._path):
            return Seen()
        try:
            return Seen.decode(read_whole(self._files, self._path))
        except ValueError as error:
            aside = self._path.with_name(self._path.name + ".damaged")
            self._files.replace(self._path, aside)
            self.problem = f"{self._path} could not be read ({error}; set aside): repeats of old batches may pass"
            log.error("%s", self.problem)
            return Seen()

    def save(self, seen: Seen) -> None:
        """Durable when this returns. Raises OSError."""
        write_whole(self._files, self._path, seen.encode())
