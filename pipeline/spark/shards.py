"""The shards of the memory store as the buckets job sees them: who is alive, what each owns, how far each is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import thriftpy2
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from thriftpy2.thrift import TException

import artimon.model
from artimon.model.routing import ownership
from bookkeeper.framed import FramedClient, FramedError

SHARDS_PATH = "/artimon/shards"
VARSTORE_PATH = "/artimon/varstore"
ZOOKEEPER_TIMEOUT_S = 3.0
ASK_TIMEOUT_S = 3.0


class ShardsUnknown(RuntimeError):
    """ZooKeeper does not say who the shards are, or none is alive."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One live shard process; sent to tasks."""

    id: str
    host: str
    port: int
    incarnation: str
    owned: frozenset[int]
    """Virtual shards."""


def model_idl() -> Path:
    """The Thrift file of the shards' service."""
    return Path(artimon.model.__file__).with_name("shard.thrift")


@lru_cache(maxsize=1)
def service() -> Any:
    """The Thrift service of a shard."""
    return thriftpy2.load(str(model_idl()), module_name="artimon_shard_thrift").Shard


class ShardDirectory:
    """Live shards from ZooKeeper; the last known ones while it is gone."""

    def __init__(self, zookeeper: KazooClient) -> None:
        self._zookeeper = zookeeper
        self._known: dict[str, Shard] = {}

    def live(self) -> dict[str, Shard]:
        """Raises ShardsUnknown if no live shard is known."""
        try:
            self._known = self._read()
        except (KazooException, KazooTimeoutError) as error:
            if not self._known:
                raise ShardsUnknown(f"ZooKeeper does not name the shards: {error!r}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ShardsUnknown(f"unreadable entry under {SHARDS_PATH} or {VARSTORE_PATH}: {error!r}") from error
        if not self._known:
            raise ShardsUnknown(f"no shard is alive: nothing under {SHARDS_PATH}")
        return dict(self._known)

    def _read(self) -> dict[str, Shard]:
        try:
            varstore = json.loads(self._get(VARSTORE_PATH))
            names = self._zookeeper.get_children_async(SHARDS_PATH).get(timeout=ZOOKEEPER_TIMEOUT_S)
        except NoNodeError:
            return {}
        owned = ownership([str(m) for m in varstore["members"]], int(varstore.get("replicas", 1)))
        shards = {}
        for name in sorted(names):
            try:
                entry: Mapping[str, Any] = json.loads(self._get(f"{SHARDS_PATH}/{name}"))
            except NoNodeError:
                continue
            if name in owned:
                at = str(entry["host"]), int(entry["port"])
                shards[name] = Shard(name, *at, str(entry.get("incarnation", "")), owned[name])
        return shards

    def _get(self, path: str) -> bytes:
        data, _ = self._zookeeper.get_async(path).get(timeout=ZOOKEEPER_TIMEOUT_S)
        return bytes(data)


def positions(shard: Shard, topic_id: str) -> dict[int, int] | None:
    """The shard's next offsets in this topic; None if it does not answer."""
    try:
        with FramedClient(service(), shard.host, shard.port, ASK_TIMEOUT_S) as client:
            answer = client.call("positions")
    except (OSError, FramedError, TException):
        return None
    return {p.partition: p.next_offset for p in answer if p.topic_id == topic_id}
