"""Reader of registered processes: below the host keys whose leases this agent wants, and below contexts.

A failed read changes nothing. Processes missing in a listing become *unregistered*; only a failed poll shows that a
process is gone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError, NotEmptyError

from artimon.runtime.zookeeper_client import child_names
from bookkeeper.process.host_key import HOSTS
from sources.base.endpoint_address import EndpointAddress, parse_endpoint, parse_host_endpoint
from sources.base.source_errors import AddressError
from sources.poll.lease_units import CONTEXTS
from sources.poll.zookeeper_session import drain, pipelined

log = logging.getLogger(__name__)
MAX_CONTEXTS = 10_000
MAX_BAD_NODES = 100
UnitListing = Mapping[str, frozenset[EndpointAddress]]
"""Unit -> all of its registered processes."""
_NONE = frozenset[EndpointAddress]()


class RegisteredProcesses:
    """Registered processes, read again where a watch fired. Used by one thread; watches, in kazoo's, only note the
    path and `wake`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed: deque[str] = deque()
        self._watches: dict[str, Callable[[object], None]] = {}
        self._hosts: dict[str, frozenset[EndpointAddress]] = {}
        self._parsed: dict[str, dict[str, EndpointAddress]] = {}
        """Path -> parsed endpoints by node: one change among 10,000 nodes parses one node."""
        self._contexts: set[str] = set()
        self._listed = False
        """True if `_contexts` are those of ZooKeeper, but for watches that fired."""
        self._told: dict[str, frozenset[EndpointAddress]] = {}
        self._stale: set[str] = set()
        self._by_context: dict[str, frozenset[EndpointAddress]] = {}
        self._bad: dict[str, dict[str, str]] = {}

    def reset(self) -> None:
        """Read everything again: watches ended with the connection."""
        self._watches = {}
        self._hosts, self._contexts, self._listed = {}, set(), False

    @property
    def bad_nodes(self) -> dict[str, str]:
        """Znode -> error of its name, for present znodes."""
        return {f"{path}/{node}": text for path, nodes in list(self._bad.items()) for node, text in nodes.items()}

    def is_empty(self, host: str) -> bool:
        """Return True if no process is registered below a host key that was read."""
        return host in self._hosts and not self._hosts[host]

    def read_hosts(self, client: Any, hosts: Collection[str], own: Collection[str]) -> None:
        """Read the processes of `hosts` and of no others. The nodes of `own` keys are created if they are missing.
        Raises ZOOKEEPER_ERRORS."""
        for host in self._hosts.keys() - hosts:
            del self._hosts[host]
            self._forget(f"{HOSTS}/{host}")
        changed = self._changed_below(HOSTS)
        unread = [host for host in hosts if host not in self._hosts or host in changed]
        for host, nodes in self._children(client, HOSTS, unread):
            if nodes is None and host in own:
                make_host(client, host)
                nodes = client.get_children(f"{HOSTS}/{host}", watch=self._watch(f"{HOSTS}/{host}"))
            self._hosts[host] = self._parse(HOSTS, host, nodes or ())

    def read_contexts(self, client: Any, wanted: bool) -> Collection[str]:
        """Read the processes registered by context, none unless `wanted`; return their units. Raises
        ZOOKEEPER_ERRORS."""
        if not wanted:
            if self._listed:
                self._contexts, self._by_context, self._listed = set(), {}, False
                self._forget(*(path for path in self._parsed if path.startswith(CONTEXTS)))
            return ()
        changed = self._changed_below(CONTEXTS)
        if not self._listed or "" in changed:
            self._list_contexts(client, changed)
        unread = sorted(changed & self._contexts)
        for context, nodes in self._children(client, CONTEXTS, unread):
            self._parse(CONTEXTS, context, nodes or ())
        if changed:
            found = dict[str, set[EndpointAddress]]()
            for path, parsed in self._parsed.items():
                if path.startswith(CONTEXTS):
                    for endpoint in parsed.values():
                        found.setdefault(endpoint.unit, set()).add(endpoint)
            self._by_context = {unit: frozenset(endpoints) for unit, endpoints in found.items()}
        return self._by_context.keys()

    def _list_contexts(self, client: Any, changed: set[str]) -> None:
        """List the contexts and add the new ones to `changed`."""
        names = child_names(client, CONTEXTS, self._watch(CONTEXTS))
        if len(names) > MAX_CONTEXTS:
            log.error("%d contexts: only %d are polled", len(names), MAX_CONTEXTS)
        present = set(names[:MAX_CONTEXTS])
        self._forget(*(f"{CONTEXTS}/{name}" for name in self._contexts - present))
        changed |= {"", *(present - self._contexts)}
        self._contexts, self._listed = present, True

    def changes(self, units: Iterable[str]) -> dict[str, frozenset[EndpointAddress]]:
        """Return the units whose processes changed since the last call, with their processes."""
        current = {unit: self._hosts.get(unit) or self._by_context.get(unit, _NONE) for unit in units}
        before, self._told = self._told, current
        return {unit: now for unit, now in current.items() if (old := before.get(unit)) is not now and old != now}

    def _changed_below(self, parent: str) -> set[str]:
        """Return the children of a node whose watches fired since the last call; "" for the node itself."""
        self._stale.update(drain(self._changed))
        found = {path for path in self._stale if path.startswith(parent)}
        self._stale -= found
        return {path[len(parent) + 1 :] for path in found}

    def _children(self, client: Any, parent: str, names: Sequence[str]) -> Iterator[tuple[str, Sequence[str] | None]]:
        """Yield the children of each node, None for a missing one."""

        def call(name: str) -> Any:
            return client.get_children_async(f"{parent}/{name}", watch=self._watch(f"{parent}/{name}"))

        for name, answer in pipelined(names, call):
            try:
                yield name, answer()
            except NoNodeError:
                yield name, None

    def _parse(self, parent: str, name: str, nodes: Sequence[str]) -> frozenset[EndpointAddress]:
        path = f"{parent}/{name}"
        parse = parse_host_endpoint if parent == HOSTS else parse_endpoint
        before, now, bad = self._parsed.get(path, {}), dict[str, EndpointAddress](), dict[str, str]()
        for node in nodes:
            try:
                now[node] = before.get(node) or parse(name, node)
            except AddressError as error:
                bad[node] = str(error)
        self._parsed[path] = now
        self._bad.pop(path, None)
        if bad:
            room = MAX_BAD_NODES - sum(map(len, self._bad.values()))
            self._bad[path] = dict(sorted(bad.items())[: max(0, room)])
        return frozenset(now.values())

    def _forget(self, *paths: str) -> None:
        for path in paths:
            self._parsed.pop(path, None)
            self._bad.pop(path, None)

    def _watch(self, path: str) -> Callable[[object], None]:
        """Return the callback of a path, the same one until it is called: kazoo keeps each callback of a path once."""

        def changed(_event: object) -> None:
            self._watches.pop(path, None)
            self._changed.append(path)
            self._wake()

        return self._watches.setdefault(path, changed)


def make_host(client: Any, host: str) -> None:
    """Create the node of a host with the access list of its parent, so that applications may register below it. Raises
    ZOOKEEPER_ERRORS."""
    client.ensure_path(HOSTS)
    acl, _ = client.get_acls(HOSTS)
    client.ensure_path(f"{HOSTS}/{host}", acl=acl)


def delete_empty_host(client: Any, host: str) -> bool:
    """Delete the node of a host below which nothing is registered. Return True if it is gone."""
    try:
        client.delete(f"{HOSTS}/{host}")
    except NoNodeError:
        return True
    except NotEmptyError:
        return False
    return True
