"""A shard that only records its feed, with the same Thrift service and the same rules of offsets and repeats as the
real one."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from typing import Any

import thriftpy2
from kazoo.client import KazooClient

from artimon.model.feed_codec import FeedRange, decode_range
from artimon.model.hash_routing import ownership, virtual_shard
from artimon.model.ranges import LaneRanges
from artimon.model.vshards import mask_of, to_hex
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.control import shard_directory as shards

MiB = 1 << 20
_STRUCTS = thriftpy2.load(str(shards.model_idl()), module_name="artimon_shard_thrift")
Row = tuple[int, int, int, str]


class RecordingShard:
    """Listens, registers in ZooKeeper, and records every row that it owns."""

    def __init__(self, id_: str, members: list[str]) -> None:
        self.id, self.members = id_, members
        self.owned = ownership(members)[id_]
        self._lock = threading.Lock()
        self._server: FramedServer | None = None
        self.forget()

    def forget(self) -> None:
        """Forget everything, as a restart does."""
        with self._lock:
            self.next: dict[tuple[str, int], int] = {}
            self.seen: dict[tuple[str, int], LaneRanges] = {}
            self.rows: Counter[Row] = Counter()
            self.dead = self.repeated = self.gaps = 0

    def start(self, zookeeper: KazooClient) -> None:
        """Listen on a fresh port and register."""
        self._server = FramedServer(shards.shard_idl(), self, max_frame=64 * MiB)
        port = self._server.start()
        zookeeper.ensure_path(shards.SHARDS_PATH)
        entry = {"host": "127.0.0.1", "port": port, "pid": 0, "incarnation": uuid.uuid4().hex}
        zookeeper.create(f"{shards.SHARDS_PATH}/{self.id}", json.dumps(entry).encode(), ephemeral=True)

    def stop(self, zookeeper: KazooClient) -> None:
        """Remove port and znode, as if killed."""
        if self._server is not None:
            self._server.stop(0.2)
            self._server = None
            zookeeper.delete(f"{shards.SHARDS_PATH}/{self.id}")

    def groups(self) -> str:
        with self._lock:
            positions = [[topic, p, at] for (topic, p), at in self.next.items()]
        return json.dumps([{"vshards": to_hex(mask_of(self.owned)), "positions": positions, "ready": True}])

    def rewind(self, topic_id: str, partition: int, offset: int) -> None:
        with self._lock:
            key = (topic_id, partition)
            self.next[key] = min(offset, self.next.get(key, 0))

    def feed(self, parts: list[bytes]) -> Any:
        range_ = decode_range(parts)
        with self._lock:
            return self._apply(range_)

    def _apply(self, range_: FeedRange) -> Any:
        assert range_.vshards == mask_of(self.owned)
        key = (range_.topic_id, range_.partition)
        at, applied, repeated, row = self.next.get(key, 0), 0, 0, 0
        if range_.start > at:
            self.gaps += 1
            return _STRUCTS.FeedAnswer(at, 0, 0, 0, 0)
        seen = self.seen.setdefault(key, LaneRanges())
        for entry in range_.entries:
            rows, row = (row, row + entry.rows), row + entry.rows
            if entry.offset < at:
                continue
            if entry.id is None:
                self.dead += 1
            elif not seen.add(entry.id.lane_id, entry.id.sequence):
                repeated += 1
            elif entry.owned:
                assert virtual_shard(entry.source) in self.owned
                self.rows.update((f, t, b, repr(v)) for f, t, b, v in range_.samples.slice(*rows).rows())
                applied += entry.rows
        assert row == len(range_.samples)
        self.next[key] = max(at, range_.until)
        self.repeated += repeated
        return _STRUCTS.FeedAnswer(self.next[key], applied, repeated, 0, 0)

    def status(self) -> bytes:
        return b"{}"
