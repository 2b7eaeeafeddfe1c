"""Where the shards are: read from ZooKeeper, kept while it is gone."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from varstore.server import SHARDS_PATH, VARSTORE_PATH

FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a live shard answers; another incarnation is another process."""

    id: str
    host: str
    port: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Shards:
    """Who there is to be, and who is."""

    members: tuple[str, ...] = ()
    live: tuple[Place, ...] = ()

    @property
    def absent(self) -> tuple[str, ...]:
        """Members that are not alive."""
        alive = {place.id for place in self.live}
        return tuple(member for member in self.members if member not in alive)


class Directory:
    """Asks ZooKeeper at most once a second. `_lock` guards the answer; nobody waits for it longer than `ask_s`."""

    def __init__(self, client: KazooClient, ask_s: float = 3.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._ask_s, self._clock = client, ask_s, clock
        self._lock = threading.Lock()
        self._known = Shards()
        self._read_at = -FRESH_S
        self.stale = ""
        """Why the last reading failed; empty if it did not."""

    def read(self) -> Shards:
        """The newest reading; an old one (see `stale`) while ZooKeeper does not answer."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._read_at >= FRESH_S:
                if self._known.live and not self._client.connected:  # waiting would only hold questions up
                    self.stale = "ZooKeeper is gone: the shards are taken to be where they were"
                    return self._known
                try:
                    self._known, self.stale = self._ask(), ""
                except (KazooException, KazooTimeoutError, ValueError, KeyError, TypeError) as error:
                    self.stale = f"ZooKeeper does not name the shards: {error!r}"
                self._read_at = self._clock.monotonic()
            return self._known

    def forget(self) -> None:
        """Ask again at the next reading: what is known led nowhere."""
        with self._lock:
            self._read_at = -FRESH_S

    def _ask(self) -> Shards:
        try:
            held = json.loads(self._get(VARSTORE_PATH))
            names = self._client.get_children_async(SHARDS_PATH).get(timeout=self._ask_s)
        except NoNodeError:
            return Shards()
        members = tuple(str(member) for member in held["members"])
        live = []
        for name in sorted(names):
            try:
                node = json.loads(self._get(f"{SHARDS_PATH}/{name}"))
            except NoNodeError:
                continue
            live.append(Place(name, str(node["host"]), int(node["port"]), str(node.get("incarnation", ""))))
        return Shards(members, tuple(place for place in live if place.id in members))

    def _get(self, path: str) -> bytes:
        data, _ = self._client.get_async(path).get(timeout=self._ask_s)
        return bytes(data)
