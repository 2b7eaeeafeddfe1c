"""Discovery of registered endpoints: watches on ZooKeeper, and periodic full listings.

Known endpoints survive an outage of ZooKeeper. A failed listing changes nothing. Endpoints missing in a listing become
*unregistered*; only a failed poll shows that a process is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.recipe.watchers import ChildrenWatch

from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS
from sources.base.endpoint_address import EndpointAddress, parse_endpoint
from sources.base.source_errors import AddressError
from sources.poll.zookeeper_session import SessionThread, ZooKeeperSession

log = logging.getLogger(__name__)
CONTEXTS = "/artimon/contexts"
MAX_CONTEXTS = 10_000
EndpointListing = Mapping[str, frozenset[EndpointAddress]]


class Discovery(SessionThread):
    """Calls `heard(context, endpoints)` for one context or `listed(listing)` for all, both in the event loop's thread.

    Threads: kazoo's call the watches, `_thread` lists every `reconcile_s`; both only schedule calls in the loop.
    `_lock` guards `_watches`; no ZooKeeper call is made under it."""

    def __init__(
        self,
        session: ZooKeeperSession,
        reconcile_s: float,
        heard: Callable[[str, frozenset[EndpointAddress]], None],
        listed: Callable[[EndpointListing], None],
    ) -> None:
        super().__init__(session, "discovery")
        self._reconcile_s, self._on_context, self._on_list = reconcile_s, heard, listed
        self._lock = threading.Lock()
        self._watches: dict[str, Any] = {}
        self._parsed: dict[str, dict[str, EndpointAddress]] = {}
        """Context -> parsed endpoints by node: one change among 10,000 nodes parses one node."""
        self.bad_nodes: dict[str, str] = {}
        """Znode -> error of its name, for present znodes."""

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self._session.revive()
                self._reconcile(self._session.client)
            except ZOOKEEPER_ERRORS as error:
                self.failures += 1
                log.warning("ZooKeeper at %s: %r; continuing with the known endpoints", self._session.hosts, error)
            except Exception:  # the thread must survive any error of the client library
                self.failures += 1
                log.exception("ZooKeeper at %s", self._session.hosts)
            self._wake.wait(self._reconcile_s if self._session.connected else 1.0)

    def _reconcile(self, client: Any) -> None:
        if not self._session.connected:
            return
        client.ensure_path(CONTEXTS)
        names = client.get_children(CONTEXTS)
        if len(names) > MAX_CONTEXTS:
            log.error("%d contexts: only %d are polled", len(names), MAX_CONTEXTS)
        listing: dict[str, Sequence[str]] = {}
        for name in sorted(names)[:MAX_CONTEXTS]:
            try:
                listing[name] = client.get_children(f"{CONTEXTS}/{name}")
            except NoNodeError:
                continue
        self._watch("", CONTEXTS, lambda _: self._wake.set())
        for name in listing:
            self._watch(name, f"{CONTEXTS}/{name}", self._context_callback(name))
        self._drop_watches(set(listing) | {""})
        self._parsed = {context: known for context, known in self._parsed.items() if context in listing}
        self._in_loop(self._on_list, {c: self._parse(c, nodes) for c, nodes in listing.items()})

    def _context_callback(self, context: str) -> Callable[[Sequence[str]], None]:
        return lambda nodes: self._in_loop(self._on_context, context, self._parse(context, nodes))

    def _watch(self, key: str, path: str, changed: Callable[[Sequence[str]], None]) -> None:
        """Watch the children of `path` unless a watch on it is alive. A watch ends when its node is deleted."""
        with self._lock:
            alive = key in self._watches and not self._watches[key]._stopped
        if alive:
            return

        def called(nodes: Sequence[str]) -> bool:
            changed(nodes)
            return not self._stop.is_set()

        watch = ChildrenWatch(self._session.client, path, called)
        with self._lock:
            self._watches[key] = watch

    def _drop_watches(self, keep: set[str]) -> None:
        with self._lock:
            for key in set(self._watches) - keep:
                self._watches.pop(key)._stopped = True

    def _parse(self, context: str, nodes: Sequence[str]) -> frozenset[EndpointAddress]:
        prefix, bad = f"{context}/", {}
        before, now = self._parsed.get(context, {}), dict[str, EndpointAddress]()
        for node in nodes:
            try:
                now[node] = before.get(node) or parse_endpoint(context, node)
            except AddressError as error:
                bad[prefix + node] = str(error)
        self._parsed[context] = now
        kept = {node: text for node, text in self.bad_nodes.items() if not node.startswith(prefix)}
        self.bad_nodes = {**kept, **dict(sorted(bad.items())[:100])}
        return frozenset(now.values())
