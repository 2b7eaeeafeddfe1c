"""Which endpoints are registered: watches on ZooKeeper, and a listing of everything now and then.

What is known outlives ZooKeeper: a listing that fails changes nothing, and what an empty one takes away is only
*unregistered*; whether a process is gone is for its own poll to say.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.recipe.watchers import ChildrenWatch

from artimon.settings import zookeeper_auth
from bookkeeper.registration import access
from sources.address import Endpoint, parse_endpoint
from sources.errors import AddressError

log = logging.getLogger(__name__)
CONTEXTS = "/artimon/contexts"
MAX_CONTEXTS = 10_000
Listing = Mapping[str, frozenset[Endpoint]]
_LOST = (KazooException, KazooTimeoutError, TimeoutError, OSError)


class Discovery:
    """Calls `heard(context, endpoints)` for one context or `listed(all of them)`, both in the event loop's thread.

    Threads: kazoo's call the watches, `_thread` lists every `reconcile_s`; both only hand over to the loop. `_lock`
    guards `_watches`; no ZooKeeper call is made under it."""

    def __init__(
        self,
        zookeeper: str,
        reconcile_s: float,
        heard: Callable[[str, frozenset[Endpoint]], None],
        listed: Callable[[Listing], None],
    ) -> None:
        self._hosts, self._reconcile_s, self._heard, self._listed = zookeeper, reconcile_s, heard, listed
        self._lock = threading.Lock()
        self._watches: dict[str, Any] = {}
        self._stop, self._again = threading.Event(), threading.Event()
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)
        self.bad_nodes: dict[str, str] = {}
        """Znode -> what is wrong with its name, of those that are there now."""
        self.failures = 0
        self.connected = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, whether ZooKeeper is there or not."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the session; takes at most a few seconds. Not to be called in the event loop."""
        self._stop.set()
        self._again.set()
        self._thread.join(5)

    def _run(self) -> None:
        self._client = client = self._connect()
        try:
            while not self._stop.is_set():
                self._again.clear()
                try:
                    self._reconcile(client)
                except _LOST as error:
                    self.failures += 1
                    log.warning("ZooKeeper at %s: %r; working from what is known", self._hosts, error)
                self._again.wait(self._reconcile_s if self.connected else 1.0)
        finally:
            client.stop()
            client.close()

    def _connect(self) -> Any:
        client = KazooClient(
            self._hosts,
            timeout=10.0,
            handler=SequentialThreadingHandler(),
            connection_retry={"max_tries": -1, "max_delay": 5.0},
            command_retry={"max_tries": 2, "max_delay": 2.0},
            **access(zookeeper_auth()),
        )
        client.add_listener(self._state_changed)
        client.start_async()
        return client

    def _state_changed(self, state: str) -> None:
        """Runs in kazoo's thread and must not wait: a new session is a reason to list everything."""
        self.connected = state == "CONNECTED"
        log.info("ZooKeeper at %s: %s", self._hosts, state)
        if self.connected:
            self._again.set()

    def _reconcile(self, client: Any) -> None:
        if not self.connected:
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
        self._watch("", CONTEXTS, lambda _: self._again.set())
        for name in listing:
            self._watch(name, f"{CONTEXTS}/{name}", self._hearer(name))
        self._drop_watches(set(listing) | {""})
        self._hand_over(self._listed, {c: self._parse(c, nodes) for c, nodes in listing.items()})

    def _hearer(self, context: str) -> Callable[[Sequence[str]], None]:
        return lambda nodes: self._hand_over(self._heard, context, self._parse(context, nodes))

    def _watch(self, key: str, path: str, changed: Callable[[Sequence[str]], None]) -> None:
        """Watch the children of `path`, unless a watch on it is alive; one whose node was deleted has ended."""
        with self._lock:
            alive = key in self._watches and not self._watches[key]._stopped
        if alive:
            return

        def called(nodes: Sequence[str]) -> bool:
            changed(nodes)
            return not self._stop.is_set()

        watch = ChildrenWatch(self._client, path, called)
        with self._lock:
            self._watches[key] = watch

    def _drop_watches(self, keep: set[str]) -> None:
        with self._lock:
            for key in set(self._watches) - keep:
                self._watches.pop(key)._stopped = True

    def _parse(self, context: str, nodes: Sequence[str]) -> frozenset[Endpoint]:
        prefix = f"{context}/"
        bad = {}
        found = set()
        for node in nodes:
            try:
                found.add(parse_endpoint(context, node))
            except AddressError as error:
                bad[prefix + node] = str(error)
        kept = {node: text for node, text in self.bad_nodes.items() if not node.startswith(prefix)}
        self.bad_nodes = {**kept, **dict(sorted(bad.items())[:100])}
        return frozenset(found)

    def _hand_over(self, call: Callable[..., None], *arguments: object) -> None:
        if self._loop is None or self._stop.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop has been closed: the source has stopped
            self._stop.set()
