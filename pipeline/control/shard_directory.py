"""Shards of the memory store for the buckets job: live processes, their groups of virtual shards, and their offsets.
Each shard reports its own groups; they are never computed from the membership."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import thriftpy2
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from thriftpy2.thrift import TException

import artimon.model
from artimon.model.vshards import from_hex
from artimon.model.znode import parse_json_object
from artimon.runtime.settings import security
from artimon.runtime.zookeeper_client import read_children
from bookkeeper.rpc.framed_server import FramedClient, FramedError

SHARDS_PATH = "/artimon/shards"
ZOOKEEPER_TIMEOUT_S = 3.0
CALL_TIMEOUT_S = 3.0


class ShardsUnknownError(RuntimeError):
    """ZooKeeper does not name the shards, or none is alive."""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One live shard process; sent to tasks."""

    id: str
    host: str
    port: int
    incarnation: str
    vshards: int | None = field(default=None, compare=False)
    """Virtual shards named by its registration, ready or not. If they differ from its known groups, the shard is asked
    again."""
    is_lagging: bool = field(default=False, compare=False)
    """True if the registration reports data in Kafka that the shard lacks: it may have gone back since it was asked."""


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """Virtual shards of one process at the same offsets: the unit of feeding."""

    shard: ShardInfo
    vshards: int
    """Mask (artimon/model/vshards.py)."""

    @property
    def key(self) -> str:
        """Name in results of tasks."""
        return f"{self.shard.id}/{self.vshards:x}"


GroupOffsets = Sequence[tuple[ShardGroup, Mapping[int, int]]]
"""Groups of a shard, each with its next offset in every partition of the topic (absent: 0)."""


def model_idl() -> Path:
    """Return the path of the Thrift file of the shards' service."""
    return Path(artimon.model.__file__).with_name("shard.thrift")


@lru_cache(maxsize=1)
def shard_idl() -> Any:
    """Return the Thrift service of a shard."""
    return thriftpy2.load(str(model_idl()), module_name="artimon_shard_thrift").Shard


class ShardDirectory:
    """Live shards from ZooKeeper; the last known ones while it is unreachable."""

    def __init__(self, zookeeper: KazooClient) -> None:
        self._zookeeper = zookeeper
        self._known: dict[str, ShardInfo] = {}

    def live_shards(self) -> dict[str, ShardInfo]:
        """Return the live shards by name. Raises ShardsUnknownError if none is known."""
        try:
            self._known = self._read()
        except (KazooException, KazooTimeoutError) as error:
            if not self._known:
                raise ShardsUnknownError(f"ZooKeeper does not name the shards: {error!r}") from error
        if not self._known:
            raise ShardsUnknownError(f"no shard is alive: {SHARDS_PATH} has no nodes")
        return dict(self._known)

    def _read(self) -> dict[str, ShardInfo]:
        shards = {}
        for name, data, _ in read_children(self._zookeeper, SHARDS_PATH, timeout_s=ZOOKEEPER_TIMEOUT_S):
            try:
                shards[name] = _parse_shard(name, data)
            except (KeyError, TypeError, ValueError):  # invalid: the other shards still count
                continue
        return shards


def _parse_shard(name: str, data: bytes) -> ShardInfo:
    """Parse a registration. Raises KeyError, TypeError, ValueError if it is invalid."""
    entry: Mapping[str, Any] = parse_json_object(data)
    held = from_hex(entry["held"]) if "held" in entry else None
    lags = from_hex(entry.get("lagging", "0")) & ~from_hex(entry.get("lacking", "0")) != 0
    return ShardInfo(name, str(entry["host"]), int(entry["port"]), str(entry.get("incarnation", "")), held, lags)


def read_groups(shard: ShardInfo, topic_id: str) -> GroupOffsets | None:
    """Ask a shard for its groups and their offsets in this topic; None if it does not answer."""
    try:
        with FramedClient(shard_idl(), shard.host, shard.port, CALL_TIMEOUT_S, security=security()) as client:
            answer = json.loads(client.call("groups"))
        return [
            (
                ShardGroup(shard, from_hex(one["vshards"])),
                {int(p): int(at) for t, p, at in one["positions"] if t == topic_id},
            )
            for one in answer
        ]
    except (OSError, FramedError, TException, ValueError, KeyError, TypeError):
        return None


def rewind_shard(shard: ShardInfo, topic_id: str, partition: int, offset: int) -> bool:
    """Tell a shard that the log of a partition was cut at `offset`: later records from there on are new to it. True if
    it confirmed."""
    try:
        with FramedClient(shard_idl(), shard.host, shard.port, CALL_TIMEOUT_S, security=security()) as client:
            client.call("rewind", topic_id, partition, offset)
    except (OSError, FramedError, TException):
        return False
    return True
