"""Election of the leader of a pair: an ephemeral znode that one engine creates, and a znode for each engine.

The lease decides who tries to lead. It does not make its holder the leader: that is who has opened the writer of the
journal last (state_log). So an engine that was stopped and wakes up with an old lease can change nothing.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError

from artimon.model.clock import Clock
from artimon.model.znode import parse_json_object
from artimon.runtime.zookeeper_client import EphemeralNode, child_names, is_trusted, read_children
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher

log = logging.getLogger(__name__)

PAIRS = "/artimon/alert-pairs"
READ_TIMEOUT_S = 3.0
MAX_MEMBERS = 20


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Engine of a pair: its name, the host:port of its API, and the time since which it runs or leads."""

    id: str
    api: str
    since_ms: int

    def encode(self) -> bytes:
        """Return the content of a znode."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> EngineAddress:
        """Inverse of `encode`. Raises ValueError."""
        found = parse_json_object(data)
        return cls(str(found["id"]), str(found["api"]), int(found["since_ms"]))


@dataclass(frozen=True, slots=True)
class PairStatus:
    """Pair: its engines, and the one that leads with the time since when; None: none does."""

    name: str
    leader: EngineAddress | None
    engines: tuple[EngineAddress, ...]


def read_pairs(client: KazooClient) -> list[PairStatus]:
    """Return the pairs of which an engine runs, without those that this client may not read. Raises ZOOKEEPER_ERRORS,
    ValueError."""
    found = []
    for name in child_names(client, PAIRS, timeout_s=READ_TIMEOUT_S)[:MAX_MEMBERS]:
        with suppress(NoAuthError):
            found += _read_pair(client, name)
    return found


def _read_pair(client: KazooClient, name: str) -> list[PairStatus]:
    """Return a pair if one of its engines runs."""
    children = read_children(client, f"{PAIRS}/{name}/engines", timeout_s=READ_TIMEOUT_S)
    engines = tuple(EngineAddress.decode(data) for _, data, _ in islice(children, MAX_MEMBERS))
    leader = None
    with suppress(NoNodeError):
        leader = EngineAddress.decode(client.get_async(f"{PAIRS}/{name}/leader").get(timeout=READ_TIMEOUT_S)[0])
    return [PairStatus(name, leader, engines)] if engines or leader else []


class EngineLease(ZooKeeperWatcher):
    """Keeps the znode of this engine, tries to get the lease, and knows who holds it.

    Threads: only its own one changes the attributes; each is replaced as a whole."""

    def __init__(
        self, client: KazooClient, pair: str, address: EngineAddress, clock: Clock, every_s: float = 2.0
    ) -> None:
        super().__init__(client, f"lease {pair}", every_s)
        self.pair = pair
        """Name of the pair."""
        self._base, self._address, self._clock = f"{PAIRS}/{pair}", address, clock
        self._member = EphemeralNode(client, f"{self._base}/engines/{address.id}", address.encode(), every_s)
        self.leader: EngineAddress | None = None
        """Holder of the lease as last read."""
        self.ours = False
        """True if this engine holds the lease, as last read. While ZooKeeper does not answer the last answer stays."""
        self.engines: tuple[EngineAddress, ...] = ()
        """Engines that run, by name."""
        self.resigned = False

    @property
    def conflict(self) -> bool:
        """True if another engine has the same name."""
        return self._member.conflict

    def start(self) -> None:
        self._member.start()
        super().start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Give up the lease and end the thread."""
        super().stop(timeout_s)
        self._member.stop(timeout_s)

    def resign(self) -> None:
        """Give up the lease soon, and do not try to get it again."""
        self.resigned = True
        self.wake()

    def confirm(self) -> bool:
        """Return True if ZooKeeper says now that this engine holds the lease. Raises ZOOKEEPER_ERRORS."""
        found = self._holder(None)
        return found is not None and found[1]

    def _refresh(self) -> None:
        if not self._client.connected:
            return
        if not self._is_safe():
            return
        if self.resigned:
            self._release()
        found = self._holder(self._on_event)
        if found is None and not self.resigned:
            self._acquire()
            found = self._holder(self._on_event)
        self.leader, self.ours = found or (None, False)
        children = read_children(self._client, f"{self._base}/engines", self._on_event, READ_TIMEOUT_S)
        engines = [EngineAddress.decode(data) for _, data, _ in islice(children, MAX_MEMBERS)]
        self.engines = tuple(sorted(engines, key=lambda one: one.id))
        self.problem = ""

    def _is_safe(self) -> bool:
        """Return True if no other user may write the nodes of the pair: engines present their token to each other."""
        for path in (self._base, f"{self._base}/engines"):
            if self._client.exists(path) and not is_trusted(self._client, path):
                self.leader, self.ours, self.engines = None, False, ()
                self.problem = f"others may write {path} in ZooKeeper: delete it, engines with a user make it again"
                return False
        return True

    def _holder(self, watch: Any) -> tuple[EngineAddress, bool] | None:
        """Return who holds the lease, and True if it is this session."""
        path = f"{self._base}/leader"
        try:
            data, stat = self._client.get_async(path, watch=watch).get(timeout=READ_TIMEOUT_S)
        except NoNodeError:
            return None
        return EngineAddress.decode(data), stat.ephemeralOwner == self._client.client_id[0]

    def _acquire(self) -> None:
        with suppress(NodeExistsError):
            data = replace(self._address, since_ms=self._clock.now_ms()).encode()
            call = self._client.create_async(f"{self._base}/leader", data, ephemeral=True, makepath=True)
            call.get(timeout=READ_TIMEOUT_S)
            log.info("%s has the lease of %s", self._address.id, self._base)

    def _release(self) -> None:
        found = self._holder(None)
        if found is not None and found[1]:
            with suppress(NoNodeError):
                self._client.delete_async(f"{self._base}/leader").get(timeout=READ_TIMEOUT_S)

    def _clean_up(self) -> None:
        if self._client.connected:
            self._release()
        self.leader, self.ours = None, False
