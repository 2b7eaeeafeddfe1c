"""Leases in ZooKeeper on units of processes: exactly one of several agents polls each unit.

`/artimon/polling/hosts/<key>` (ephemeral) belongs to the agent on a host, `/artimon/polling/leases/<unit>` (ephemeral)
to an agent that polls in its place. The agent on a host creates its node, in a transaction that fails if there is a
lease, else it then waits until the lease is gone; the other creates the lease and gives way if it then sees the node of
the host. ZooKeeper orders the two writes, so the later one sees the earlier. docs/sources.md.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.runtime.zookeeper_client import child_names
from sources.poll.lease_units import address_of_unit
from sources.poll.zookeeper_session import CALL_TIMEOUT_S, drain, pipelined

CLAIMS, LEASES = "/artimon/polling/hosts", "/artimon/polling/leases"
MAX_ATTEMPTS = 3
MAX_TOGETHER = 500
"""Host keys claimed in one transaction: some 300 bytes each, of 1 MiB that a server accepts."""
GONE = NoNodeError, BadVersionError


class UnitLeases:
    """Leases of one session. Used by one thread; watches, in kazoo's, only note that a node has changed and `wake`."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._data, self._wake = name.encode(), wake
        self.held: dict[str, str] = {}
        """Unit -> path of its node."""
        self.elsewhere: set[str] = set()
        """Units that another agent holds; a watch reports the release."""
        self._waiting: dict[str, str] = {}
        """Own host key whose lease another agent still holds -> path of our node."""
        self._freed: deque[str] = deque()
        self._watches: dict[str, Callable[[object], None]] = {}
        self.lost = False
        """True if a node of ours may have been deleted by somebody else."""

    def reset(self) -> None:
        """Forget everything at the begin of a new session."""
        self.held, self.elsewhere, self._waiting, self._watches = {}, set(), {}, {}
        self._freed.clear()
        self.lost = False

    def verify(self, client: Any) -> None:
        """Drop leases whose nodes were deleted."""
        self.lost = False
        ours = {**self.held, **self._waiting}
        claims = {unit for unit, path in ours.items() if path.startswith(CLAIMS)}
        calls = pipelined(claims, lambda unit: client.exists_async(ours[unit], watch=self._on_lost))
        gone = {unit for unit, answer in calls if not _is_ours(client, answer())}
        if ours.keys() - claims:
            present = set(child_names(client, LEASES))
            gone |= {unit for unit in ours.keys() - claims if unit not in present}
        for unit in gone:
            self.held.pop(unit, None)
            self._waiting.pop(unit, None)
        known = ours.keys() | self.elsewhere
        self._watches = {unit: watch for unit, watch in self._watches.items() if unit in known}

    def claim(self, client: Any, units: Iterable[str], own: Collection[str]) -> set[str]:
        """Acquire leases; `own`: the host keys of this agent. Return the units whose holder could not be determined."""
        self.elsewhere.difference_update(drain(self._freed))
        units = set(units)
        self.elsewhere &= units
        open_ = units - self.held.keys() - self.elsewhere
        for _ in range(MAX_ATTEMPTS):
            open_ = self._claim_once(client, open_, own) if open_ else open_
        return open_

    def _claim_once(self, client: Any, units: Iterable[str], own: Collection[str]) -> set[str]:
        paths = {unit: f"{CLAIMS if unit in own else LEASES}/{unit}" for unit in units}
        created, taken = set(self._waiting.keys() & paths.keys()), []
        free = self._claim_free(client, [unit for unit in paths.keys() - created if paths[unit].startswith(CLAIMS)])
        calls = pipelined(
            paths.keys() - created - free,
            lambda u: client.create_async(paths[u], self._data, ephemeral=True, makepath=True),
        )
        for unit, result in calls:
            try:
                result()
                created.add(unit)
            except NodeExistsError:
                taken.append(unit)
        unknown = set()
        for unit, look in pipelined(taken, lambda u: client.get_async(paths[u], watch=self._on_freed(u))):
            ours = self._resolve(client, paths[unit], look)
            if ours is None:
                unknown.add(unit)
            elif ours:
                created.add(unit)
            else:
                self.elsewhere.add(unit)
        self._confirm(client, {unit: paths[unit] for unit in created})
        return unknown

    def _claim_free(self, client: Any, units: Sequence[str]) -> set[str]:
        """Claim own host keys without a lease; return those that are held now: all in one transaction, or, if that
        fails, each in one of its own. It makes and deletes the lease, too, and so fails if there is one: no read must
        follow."""
        together = self._commit_claims(client, [tuple(units)]) if 1 < len(units) <= MAX_TOGETHER else set[str]()
        return together or self._commit_claims(client, [(unit,) for unit in units])

    def _commit_claims(self, client: Any, groups: Iterable[tuple[str, ...]]) -> set[str]:
        """Claim each group of host keys in one transaction; return the keys that are held now."""

        def begin(group: tuple[str, ...]) -> Any:
            claims = client.transaction()
            for unit in group:
                claims.create(f"{LEASES}/{unit}", ephemeral=True)
                claims.delete(f"{LEASES}/{unit}")
                claims.create(f"{CLAIMS}/{unit}", self._data, ephemeral=True)
            return claims.commit_async()

        free, errors = set[str](), list[Exception]()
        for group, answer in pipelined(groups, begin):
            failed = [one for one in answer() if isinstance(one, Exception)]
            errors += failed
            for unit in () if failed else group:
                self._watch_claim(client, f"{CLAIMS}/{unit}")
                self.held[unit] = f"{CLAIMS}/{unit}"
                free.add(unit)
        if any(isinstance(one, NoNodeError) for one in errors):  # the first claim ever
            client.ensure_path(LEASES)
            client.ensure_path(CLAIMS)
        return free

    def _watch_claim(self, client: Any, path: str) -> None:
        client.exists_async(path, watch=self._on_lost).get(timeout=CALL_TIMEOUT_S)

    def _resolve(self, client: Any, path: str, look: Callable[[], Any]) -> bool | None:
        """Determine the holder of an existing node: True if it is ours, None if the node is gone now."""
        try:
            data, stat = look()
        except NoNodeError:  # deleted between two calls
            return None
        if _is_ours(client, stat):
            return True
        if data != self._data:
            return False
        with contextlib.suppress(*GONE):  # left by an earlier session of this agent
            client.delete(path, version=stat.version)
        return None

    def _confirm(self, client: Any, created: dict[str, str]) -> None:
        """Hold the units of our nodes, except those of which another agent has the other node."""

        def other(unit: str) -> Any:
            path = f"{LEASES if created[unit].startswith(CLAIMS) else CLAIMS}/{unit}"
            return client.get_async(path, watch=self._on_freed(unit))

        for unit in created:
            if address_of_unit(unit) is not None:
                self.held[unit] = created[unit]
        for unit, look in pipelined([unit for unit in created if address_of_unit(unit) is None], other):
            path = created[unit]
            is_claim = path.startswith(CLAIMS)
            if is_claim:
                self._watch_claim(client, path)
            rival = f"{LEASES if is_claim else CLAIMS}/{unit}"
            ours = self._resolve(client, rival, look)
            if ours is None or (ours and is_claim):
                if ours:  # this agent was the elected one before
                    _delete(client, rival)
                self._waiting.pop(unit, None)
                self.held[unit] = path
                continue
            self.elsewhere.add(unit)
            if is_claim:
                self._waiting[unit] = path
            else:
                _delete(client, path)

    def release(self, client: Any, units: Iterable[str]) -> None:
        """Delete leases."""
        paths = {unit: path for unit in units if (path := self.held.get(unit) or self._waiting.get(unit))}
        for unit, result in pipelined(paths, lambda unit: client.delete_async(paths[unit])):
            with contextlib.suppress(*GONE):
                result()
            self.held.pop(unit, None)
            self._waiting.pop(unit, None)

    def abandoned(self, wanted: Collection[str]) -> set[str]:
        """Return the units that wait for the lease of another agent and are not wanted any more."""
        return {unit for unit in self._waiting if unit not in wanted}

    # --- watches, in kazoo's threads

    def _on_lost(self, _event: object) -> None:
        self.lost = True
        self._wake()

    def _on_freed(self, unit: str) -> Callable[[object], None]:
        """Return the callback of a unit, always the same one: kazoo keeps each callback of a path once."""

        def freed(_event: object) -> None:
            self._freed.append(unit)
            self._wake()

        return self._watches.setdefault(unit, freed)


def _is_ours(client: Any, stat: Any) -> bool:
    return stat is not None and stat.ephemeralOwner == client.client_id[0]


def _delete(client: Any, path: str) -> None:
    with contextlib.suppress(*GONE):
        client.delete(path)
