"""Leases in ZooKeeper on groups of processes: exactly one of several agents polls each group.

`/artimon/polling/agents/<agent>` (ephemeral) registers an agent with the addresses of its host;
`/artimon/polling/leases/<ip>,<context>` (ephemeral) belongs to the agent that polls the group. docs/sources.md.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.model.znode import parse_json_object
from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS
from sources.poll.zookeeper_session import SessionThread, ZooKeeperSession
from tests.simulation.version_before.group_assignment import GroupAssignment, HostGroup, Network

log = logging.getLogger(__name__)
AGENTS, LEASES = "/artimon/polling/agents", "/artimon/polling/leases"
CALL_TIMEOUT_S = 10.0
CONCURRENT_CALLS = 500
"""Concurrent calls to ZooKeeper."""
MAX_ATTEMPTS = 3
CHECKS_PER_SESSION = 4
"""Liveness checks of the session per session timeout."""
TRUSTED_SESSION_PART = 0.8
"""Part of the session timeout after which an unconfirmed session is not trusted."""
PAUSE_S = 0.05
"""Seconds between passes, so that changes within them are handled together."""
GONE = NoNodeError, BadVersionError
AssignmentCallback = Callable[[frozenset[HostGroup], frozenset[HostGroup]], None]


class GroupLeases(SessionThread):
    """Acquires and releases leases. Calls `settled(mine, leaving)` in the event loop: the groups to poll, and those to
    give up once `released` is called for them.

    The groups of a lost agent stay reserved for `grace_s`, the time of a restart. A new agent takes groups of other
    hosts only after that time.

    Threads: only `_thread` makes calls and changes `_held`; the event loop calls `want`, `released`, `sure`."""

    def __init__(
        self,
        session: ZooKeeperSession,
        name: str,
        networks: Callable[[], frozenset[Network]],
        settled: AssignmentCallback,
        *,
        grace_s: float,
        reconcile_s: float,
    ) -> None:
        super().__init__(session, "leases")
        self._name, self._networks, self._on_assigned = name, networks, settled
        self._grace_s, self._reconcile_s = grace_s, reconcile_s
        self._wanted: tuple[frozenset[HostGroup], frozenset[HostGroup]] = frozenset(), frozenset()
        self._session_number = -1
        self._held: set[HostGroup] = set()
        self._leaving: set[HostGroup] = set()
        self._elsewhere: set[HostGroup] = set()
        """Wanted groups whose lease another agent holds; a watch reports the release."""
        self._released: deque[HostGroup] = deque()
        self._freed: deque[HostGroup] = deque()
        self._assignment = GroupAssignment({})
        self._members: dict[str, frozenset[Network]] = {}
        self._departed: dict[str, tuple[frozenset[Network], float]] = {}
        self._stale = True
        """True if the members must be read again."""
        self._next_read = self._next_pass = 0.0
        """Monotonic times of the next full check and of the next pass."""
        self._joined = 0.0
        self._proven_at = -1e9
        """Monotonic time of the last call that confirmed the session. After a pause of the process or the machine,
        ZooKeeper reports the end of the session with a delay."""

    # --- in the event loop

    def set_wanted(self, registered: frozenset[HostGroup], kept: frozenset[HostGroup]) -> None:
        """Set the groups with a registered process, and those with a polled but unregistered one. The latter stay here,
        because no other agent could discover the process."""
        self._wanted = registered, kept
        self._wake.set()

    def released(self, group: HostGroup) -> None:
        """Confirm that no process of a leaving group is polled any more."""
        self._released.append(group)
        self._wake.set()

    def holds_lease(self, group: HostGroup) -> bool:
        """Return True if the lease is held and the session was confirmed recently enough."""
        session = self._session
        alive = session.connected and self._session_number == session.ended_sessions
        return (
            alive and group in self._held and monotonic() - self._proven_at < TRUSTED_SESSION_PART * session.timeout_s
        )

    def counts(self) -> dict[str, int]:
        """Return the number of agents, of leases held here, and of leases wanted here but held elsewhere."""
        return {"agents": len(self._members), "held": len(self._held), "elsewhere": len(self._elsewhere)}

    # --- in the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._session.connected:
                self._run_once(self._session.client)
            self._stop.wait(PAUSE_S)
            self._wake.wait(self._pause())

    def _run_once(self, client: Any) -> None:
        told = self._wake.is_set()
        self._wake.clear()
        try:
            self._prove(client)
            if told or monotonic() >= self._next_pass:
                self._pass(client)
        except Exception as error:  # the thread must survive any error of the client library
            self.failures += 1
            self._next_read = self._next_pass = 0.0
            log.warning(
                "leases: %r; retrying, present polls continue", error, exc_info=not isinstance(error, ZOOKEEPER_ERRORS)
            )
            self._stop.wait(1.0)

    def _prove(self, client: Any) -> None:
        """Check that the node of this agent exists and belongs to this session."""
        asked = monotonic()
        stat = client.exists(f"{AGENTS}/{self._name}")
        if stat is not None and stat.ephemeralOwner == client.client_id[0]:
            self._proven_at = asked
        else:
            self._stale = True
            self._wake.set()

    def _pause(self) -> float:
        """Return the seconds until the next check of the session or the next pass."""
        if not self._session.connected:
            return self._reconcile_s
        return max(PAUSE_S, min(self._session.timeout_s / CHECKS_PER_SESSION, self._next_pass - monotonic()))

    def _next_deadline(self) -> float:
        """Return the monotonic time of the next pass."""
        ends = [self._next_read, *(until for _, until in self._departed.values())]
        if monotonic() < self._joined + self._grace_s:
            ends.append(self._joined + self._grace_s)
        return min(ends)

    def _pass(self, client: Any) -> None:
        lives = self._session.ended_sessions
        if lives != self._session_number:  # a new session: nothing is held yet
            self._held, self._leaving, self._elsewhere = set(), set(), set()
            self._session_number, self._stale = lives, True
        if self._stale or monotonic() >= self._next_read:
            self._read_members(client)
        self._release_leases(client)
        registered, kept = self._wanted
        present = self._present()
        if present != self._assignment.networks:
            self._assignment = GroupAssignment(present)
        ours = {group for group in registered if self._is_assigned(group)} | kept
        self._elsewhere = (self._elsewhere & ours) - set(_drain(self._freed))
        self._leaving |= self._held - ours
        unknown = self._claim(client, ours - self._held - self._elsewhere)
        self._next_pass = self._next_deadline()
        if lives == self._session.ended_sessions:
            mine = frozenset((self._held - self._leaving) | unknown)
            self._in_loop(self._on_assigned, mine, frozenset(self._leaving))

    def _read_members(self, client: Any) -> None:
        """Read the members, and drop leases whose node was deleted."""
        self._stale = False
        for path in (AGENTS, LEASES):
            client.ensure_path(path)
        self._join(client)
        names = client.get_children(AGENTS, watch=self._changed)
        members: dict[str, frozenset[Network]] = {}
        for name, result in self._results(names, lambda name: client.get_async(f"{AGENTS}/{name}")):
            with contextlib.suppress(NoNodeError):
                members[name] = _networks(result()[0])
        now = monotonic()
        for name in self._members.keys() - members.keys():
            self._departed[name] = self._members[name], now + self._grace_s
        self._members = members
        there = set(client.get_children(LEASES))
        self._held = {group for group in self._held if group.key in there}
        self._elsewhere = {group for group in self._elsewhere if group.key in there}
        self._next_read = now + self._reconcile_s

    def _join(self, client: Any) -> None:
        data = json.dumps({"networks": sorted(str(net) for net in self._networks())}).encode()
        path = f"{AGENTS}/{self._name}"
        try:
            client.create(path, data, ephemeral=True)
        except NodeExistsError:
            there, stat = client.get(path)
            if stat.ephemeralOwner != client.client_id[0]:  # left by an earlier session of this agent
                with contextlib.suppress(*GONE):
                    client.delete(path, version=stat.version)
                client.create(path, data, ephemeral=True)
            elif there != data:
                client.set(path, data)
        self._joined = self._joined or monotonic()

    def _present(self) -> dict[str, frozenset[Network]]:
        """Return the agents, including lost ones within their grace period."""
        now = monotonic()
        self._departed = {
            name: gone for name, gone in self._departed.items() if gone[1] > now and name not in self._members
        }
        return {**{name: gone[0] for name, gone in self._departed.items()}, **self._members}

    def _is_assigned(self, group: HostGroup) -> bool:
        if self._assignment.poller(group) != self._name:
            return False
        settled = monotonic() >= self._joined + self._grace_s
        return settled or group in self._held or self._name in self._assignment.near(group.ip)

    def _claim(self, client: Any, groups: Iterable[HostGroup]) -> set[HostGroup]:
        """Acquire leases. Return the groups whose holder could not be determined."""
        open_ = set(groups)
        for _ in range(MAX_ATTEMPTS):
            open_ = self._claim_once(client, open_) if open_ else open_
        if open_:
            self._wake.set()
        return open_

    def _claim_once(self, client: Any, groups: Iterable[HostGroup]) -> set[HostGroup]:
        data = self._name.encode()
        taken = []
        calls = self._results(groups, lambda group: client.create_async(_path(group), data, ephemeral=True))
        for group, result in calls:
            try:
                result()
                self._held.add(group)
            except NodeExistsError:
                taken.append(group)
        held = self._results(taken, lambda group: client.get_async(_path(group), watch=self._on_released(group)))
        return {group for group, result in held if not self._resolve_claim(client, group, result)}

    def _resolve_claim(self, client: Any, group: HostGroup, look: Callable[[], Any]) -> bool:
        """Determine the holder of an existing lease; return False if the lease is free now."""
        try:
            data, stat = look()
        except NoNodeError:  # deleted between two calls
            return False
        if stat.ephemeralOwner == client.client_id[0]:
            self._held.add(group)
        elif data == self._name.encode():  # left by an earlier session of this agent
            with contextlib.suppress(*GONE):
                client.delete(_path(group), version=stat.version)
            return False
        else:
            self._elsewhere.add(group)
        return True

    def _release_leases(self, client: Any) -> None:
        """Delete leases whose processes are no longer polled here."""
        ended = {group for group in _drain(self._released) if group in self._leaving}
        for group, result in self._results(ended, lambda group: client.delete_async(_path(group))):
            with contextlib.suppress(*GONE):
                result()
            self._held.discard(group)
            self._leaving.discard(group)

    # --- pipelined calls

    def _results(self, items: Iterable[Any], call: Callable[[Any], Any]) -> Iterator[tuple[Any, Callable[[], Any]]]:
        """Yield each item with a function that waits for the answer to its call."""
        rest = list(items)
        for at in range(0, len(rest), CONCURRENT_CALLS):
            calls = [(item, call(item)) for item in rest[at : at + CONCURRENT_CALLS]]
            for item, answer in calls:
                yield item, partial(answer.get, timeout=CALL_TIMEOUT_S)

    # --- watches, in kazoo's threads

    def _changed(self, _event: object) -> None:
        self._stale = True
        self._wake.set()

    def _on_released(self, group: HostGroup) -> Callable[[object], None]:
        def freed(_event: object) -> None:
            self._freed.append(group)
            self._wake.set()

        return freed


def _drain(queue: deque[HostGroup]) -> Iterator[HostGroup]:
    """Remove and yield the entries added by other threads."""
    while queue:
        yield queue.popleft()


def _path(group: HostGroup) -> str:
    return f"{LEASES}/{group.key}"


def _networks(data: bytes) -> frozenset[Network]:
    """Return the networks in an agent's node, none if it is invalid."""
    try:
        return frozenset(ipaddress.ip_network(text) for text in parse_json_object(data)["networks"])
    except (ValueError, KeyError, TypeError):
        return frozenset()
