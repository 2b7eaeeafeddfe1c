"""Membership of the store in ZooKeeper: one znode, changed by compare-and-set of its version."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.grid import DEFAULT_LEVELS, GridError, Level, levels_text, parse_levels
from artimon.model.hash_routing import owners_of, ownership
from artimon.model.vshards import mask_of
from artimon.model.znode import parse_json_object

log = logging.getLogger(__name__)

SHARDS_PATH = "/artimon/shards"
VARSTORE_PATH = "/artimon/varstore"
READ_TIMEOUT_S = 3.0
REREAD_S = 10.0
"""Interval of readings besides the watch, which may be lost with its session."""
_MAX_ATTEMPTS = 10
_UNANSWERED = (KazooException, KazooTimeoutError)


class MembershipError(RuntimeError):
    """The membership cannot be read or changed as wanted. The text says why and what to do."""


class LevelsDiffer(RuntimeError):
    """This shard was started with other levels than the store has."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Members, replicas and levels. Placement is rendezvous hashing, so a change moves only what it must."""

    members: tuple[str, ...]
    replicas: int = 1
    levels: tuple[Level, ...] = DEFAULT_LEVELS
    confirmed: bool = True
    """True if read from ZooKeeper; False if it comes from the command line."""

    def owners(self, vshard: int) -> list[str]:
        """Return the members that own a virtual shard, best first."""
        return owners_of(vshard, self.members, self.replicas)

    def owned_by(self, member: str) -> int:
        """Return the mask of the virtual shards that a member owns; 0 for a non-member."""
        return _wanted(self.members, self.replicas).get(member, 0)

    def with_member(self, member: str) -> Membership:
        """Return the membership with one more member. Raises MembershipError if it is one already."""
        if not member or "/" in member or "," in member:
            raise MembershipError(f"{member!r} cannot be the id of a shard: use letters and digits")
        if member in self.members:
            raise MembershipError(f"shard {member} is already a member: {self}")
        return replace(self, members=(*self.members, member))

    def without_member(self, member: str) -> Membership:
        """Return the membership without a member. Raises MembershipError if too few are left."""
        if member not in self.members:
            raise MembershipError(f"shard {member} is not a member: {self}")
        if len(self.members) - 1 < self.replicas:
            left = len(self.members) - 1
            raise MembershipError(
                f"without shard {member} {left} members are left for {self.replicas} replicas: add a shard or "
                "lower the replicas first"
            )
        return replace(self, members=tuple(m for m in self.members if m != member))

    def with_replicas(self, replicas: int) -> Membership:
        """Return the membership with `replicas` replicas. Raises MembershipError if there are fewer members."""
        if not 1 <= replicas <= len(self.members):
            raise MembershipError(f"{replicas} replicas are impossible on {len(self.members)} members: {self}")
        return replace(self, replicas=replicas)

    def __str__(self) -> str:
        return f"members {', '.join(self.members)}; {self.replicas} replicas; levels {levels_text(self.levels)}"

    def to_bytes(self) -> bytes:
        """Return the content of the znode."""
        plain = {"members": list(self.members), "replicas": self.replicas, "levels": levels_text(self.levels)}
        return json.dumps(plain).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Membership:
        """Parse the bytes of `to_bytes`. Raises MembershipError."""
        try:
            plain: dict[str, Any] = parse_json_object(data)
            levels = parse_levels(plain["levels"]) if "levels" in plain else DEFAULT_LEVELS
            return cls(tuple(str(m) for m in plain["members"]), int(plain.get("replicas", 1)), levels)
        except (ValueError, KeyError, TypeError, GridError) as error:
            raise MembershipError(f"unreadable: {VARSTORE_PATH} holds {data[:200]!r} ({error!r})") from error


@lru_cache(maxsize=8)
def _wanted(members: tuple[str, ...], replicas: int) -> dict[str, int]:
    return {member: mask_of(vshards) for member, vshards in ownership(members, replicas).items()}


def read_membership(client: KazooClient, watch: Callable[[Any], None] | None = None) -> Membership | None:
    """Return the membership in ZooKeeper; None if there is none yet. Raises MembershipError if it does not answer."""
    try:
        return Membership.from_bytes(client.get_async(VARSTORE_PATH, watch=watch).get(timeout=READ_TIMEOUT_S)[0])
    except NoNodeError:
        return None
    except _UNANSWERED as error:
        raise MembershipError(f"the membership cannot be read from ZooKeeper: {error!r}") from error


def ensure_membership(client: KazooClient, wanted: Membership) -> Membership:
    """Return the membership in ZooKeeper, which becomes `wanted` if there is none. Raises MembershipError."""
    found = read_membership(client)
    if found is not None:
        return found
    try:
        client.create_async(VARSTORE_PATH, wanted.to_bytes(), makepath=True).get(timeout=READ_TIMEOUT_S)
    except NodeExistsError:
        pass
    except _UNANSWERED as error:
        raise MembershipError(f"the membership cannot be written to ZooKeeper: {error!r}") from error
    return read_membership(client) or wanted


def update_membership(client: KazooClient, how: Callable[[Membership], Membership]) -> Membership:
    """Change the membership by compare-and-set, so that no concurrent change is lost. Raises MembershipError."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            data, stat = client.get_async(VARSTORE_PATH).get(timeout=READ_TIMEOUT_S)
            wanted = how(Membership.from_bytes(data))
            client.set_async(VARSTORE_PATH, wanted.to_bytes(), version=stat.version).get(timeout=READ_TIMEOUT_S)
            return wanted
        except BadVersionError:
            continue
        except NoNodeError:
            raise MembershipError(f"{VARSTORE_PATH} does not exist: start a shard first") from None
        except _UNANSWERED as error:
            raise MembershipError(f"ZooKeeper does not answer: {error!r}") from error
    raise MembershipError(f"{VARSTORE_PATH} was changed by others {_MAX_ATTEMPTS} times in a row: try again")


class MembershipWatch:
    """The newest membership that one shard process knows; `look` is for one thread.

    Without ZooKeeper it is that of the command line, then the one read last."""

    def __init__(self, client: KazooClient, wanted: Membership, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._wanted, self._clock = client, wanted, clock
        self._changed = threading.Event()
        self._read_at = -REREAD_S
        self.current = replace(wanted, confirmed=False)

    def poll(self) -> Membership:
        """Return the newest membership; reads ZooKeeper if it is due. Raises LevelsDiffer."""
        now = self._clock.monotonic()
        if self._client.connected and (self._changed.is_set() or now - self._read_at >= REREAD_S):
            self._changed.clear()
            self._read_at = now
            try:
                # an emptied ZooKeeper gets back the membership it had
                wanted = replace(self.current, confirmed=True) if self.current.confirmed else self._wanted
                ensure_membership(self._client, wanted)
                self._accept(read_membership(self._client, self._on_event))
            except MembershipError as error:
                log.warning("%s; using %s", error, self.current)
        return self.current

    def _on_event(self, _event: Any) -> None:
        self._changed.set()

    def _accept(self, found: Membership | None) -> None:
        if found is None:
            return
        if found.levels != self._wanted.levels:
            raise LevelsDiffer(
                f"this shard was started with levels {levels_text(self._wanted.levels)}, the store has "
                f"{levels_text(found.levels)} ({VARSTORE_PATH}): set the same ARTIMON_LEVELS everywhere"
            )
        if found != self.current:
            log.info("shards: %s", found)
        self.current = found
