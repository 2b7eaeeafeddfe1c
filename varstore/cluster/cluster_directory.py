"""Addresses of the shards and their virtual shards: read from ZooKeeper, kept while it is unavailable."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.vshards import from_hex, to_hex
from artimon.model.znode import parse_json_object
from varstore.cluster.membership import SHARDS_PATH, Membership, MembershipError, read_membership

CACHE_TTL_S = 1.0
REREAD_S = 10.0
"""Age in seconds of an answer from which ZooKeeper is asked again although no watch fired."""


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """Address of a live shard; another incarnation is another process. The masks change while it lives, and are not
    compared."""

    id: str
    host: str
    port: int
    incarnation: str
    held_vshards: int = field(default=0, compare=False)
    """Mask of all virtual shards that it holds."""
    ready_vshards: int = field(default=0, compare=False)
    """Mask of those that it holds whole."""
    lagging_vshards: int = field(default=0, compare=False)
    """Mask of ready ones that lack messages that Kafka has had for a while, or has deleted."""
    lacking_vshards: int = field(default=0, compare=False)
    """Mask of lagging ones that lack messages that Kafka deleted before they were read."""

    @property
    def healthy_vshards(self) -> int:
        """Mask of virtual shards that are whole and do not lag."""
        return self.ready_vshards & ~self.lagging_vshards

    def to_bytes(self, pid: int) -> bytes:
        """Return the content of its znode."""
        masks = {
            "held": to_hex(self.held_vshards),
            "holds": to_hex(self.ready_vshards),
            "lagging": to_hex(self.lagging_vshards),
        }
        masks |= {"lacking": to_hex(self.lacking_vshards)} if self.lacking_vshards else {}
        node = {"host": self.host, "port": self.port, "pid": pid, "incarnation": self.incarnation, **masks}
        return json.dumps(node).encode()

    @classmethod
    def from_bytes(cls, id_: str, data: bytes) -> ShardAddress:
        """Parse the bytes of `to_bytes`; without masks it holds nothing. Raises ValueError, KeyError, TypeError."""
        node = parse_json_object(data)
        masks = (from_hex(node.get(name, "0")) for name in ("held", "holds", "lagging", "lacking"))
        return cls(id_, str(node["host"]), int(node["port"]), str(node.get("incarnation", "")), *masks)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Membership and live shards (members or not: a removed one answers until others have taken over)."""

    membership: Membership = field(default_factory=lambda: Membership(()))
    live: tuple[ShardAddress, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """Ids of the members."""
        return self.membership.members

    @property
    def absent(self) -> tuple[str, ...]:
        """Members that are not alive."""
        alive = {place.id for place in self.live}
        return tuple(member for member in self.members if member not in alive)


class ClusterDirectory:
    """Asks ZooKeeper when a watch fired, at most once a second, and every REREAD_S. kazoo calls all watches when the
    connection is lost. `_lock` guards the answer. `ask_s`: timeout of each request."""

    def __init__(self, client: KazooClient, ask_s: float = 3.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._ask_s, self._clock = client, ask_s, clock
        self._lock = threading.Lock()
        self._state = ClusterState()
        self._read_at = -REREAD_S
        self._changed = threading.Event()
        self.stale = ""
        """Reason why the last reading failed; empty if it succeeded."""

    def read(self) -> ClusterState:
        """Return the newest reading; an old one (see `stale`) while ZooKeeper does not answer."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._read_at >= (CACHE_TTL_S if self._changed.is_set() or self.stale else REREAD_S):
                if self._state.live and not self._client.connected:  # waiting would only delay requests
                    self.stale = "ZooKeeper does not answer: using the shards known last"
                    return self._state
                try:
                    self._state, self.stale = self._fetch(), ""
                except (MembershipError, KazooException, KazooTimeoutError, ValueError, KeyError, TypeError) as error:
                    self.stale = f"the shards cannot be read from ZooKeeper: {error!r}"
                self._read_at = self._clock.monotonic()
            return self._state

    def invalidate(self) -> None:
        """Ask again at the next reading: the known places are out of date."""
        with self._lock:
            self._read_at = -REREAD_S

    def _fetch(self) -> ClusterState:
        self._changed.clear()
        membership = read_membership(self._client, self._on_event)
        if membership is None:
            self._changed.set()  # a missing node has no watch
        deadline = self._clock.monotonic() + self._ask_s  # of all requests: queries wait for this
        try:
            names = self._client.get_children_async(SHARDS_PATH, watch=self._on_event).get(timeout=self._ask_s)
        except NoNodeError:
            self._changed.set()
            return ClusterState(membership or Membership(()))
        asked = [
            (name, self._client.get_async(f"{SHARDS_PATH}/{name}", watch=self._on_event)) for name in sorted(names)
        ]
        live = []
        for name, answer in asked:
            try:
                left_s = max(0.0, deadline - self._clock.monotonic())
                live.append(ShardAddress.from_bytes(name, answer.get(timeout=left_s)[0]))
            except (NoNodeError, ValueError, KeyError, TypeError):  # gone, or not a shard: skip only this one
                continue
        return ClusterState(membership or Membership(()), tuple(live))

    def _on_event(self, _event: Any) -> None:
        self._changed.set()
