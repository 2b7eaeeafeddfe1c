"""ZooKeeper clients, checks of access lists, and registration by an ephemeral znode: created with every new session,
deleted at stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType
from kazoo.security import Permissions, make_digest_acl

from artimon.runtime.settings import zookeeper_auth
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from bookkeeper.process.ephemeral_node import accept_older_servers, client_auth_options

log = logging.getLogger(__name__)

_CHECK_PERIOD_S = 120.0
Watch = Callable[[Any], None]


def zookeeper_client(hosts: str, timeout_s: float = 10.0, pause_s: float = 30.0) -> KazooClient:
    """Return a client that retries to connect for ever, at most `pause_s` seconds apart; `timeout_s` is that of the
    session. The caller starts it with `start_async`. It authenticates by ARTIMON_ZOOKEEPER_AUTH and creates its nodes
    for that user only. Raises SettingsError."""
    client = KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        connection_retry={"max_tries": -1, "max_delay": pause_s, "delay": 0.2, "backoff": 2},
        command_retry={"max_tries": 3, "max_delay": 2},
        **client_auth_options(zookeeper_auth()),
    )
    accept_older_servers(client)
    return client


@contextmanager
def zookeeper_session(hosts: str, connect_s: float = 0.0) -> Iterator[KazooClient]:
    """Start a client and close it at the end. `connect_s`: seconds to wait for the connection; 0: do not wait. Raises
    KazooTimeoutError, SettingsError."""
    client = zookeeper_client(hosts)
    try:
        if connect_s:
            client.start(timeout=connect_s)
        else:
            client.start_async()
        yield client
    finally:
        close_client(client)


def close_client(client: KazooClient) -> None:
    """End the session, and with it all of its ephemeral nodes."""
    client.stop()
    client.close()


def child_names(
    client: KazooClient, path: str, watch: Watch | None = None, timeout_s: float | None = None
) -> list[str]:
    """Return the names of the children, sorted; [] without the node. `watch` fires when they change or the node
    appears. `timeout_s`: limit of each call; None: none. Raises KazooException, KazooTimeoutError."""
    while True:
        try:
            return sorted(client.get_children_async(path, watch=watch).get(timeout=timeout_s))
        except NoNodeError:
            if watch is None or client.exists_async(path, watch=watch).get(timeout=timeout_s) is None:
                return []  # a node created between the two calls is read again: its children have no watch yet


def read_children(
    client: KazooClient,
    path: str,
    watch: Watch | None = None,
    timeout_s: float | None = None,
    watch_each: Watch | None = None,
) -> Iterator[tuple[str, bytes, Any]]:
    """Yield name, data and stat of each child, like `child_names`; one that is deleted meanwhile is left out.
    `watch_each` fires when the data of a child changes."""
    for name in child_names(client, path, watch, timeout_s):
        try:
            data, stat = client.get_async(f"{path}/{name}", watch=watch_each).get(timeout=timeout_s)
        except NoNodeError:
            continue
        yield name, data, stat


class EphemeralNode(ZooKeeperWatcher):
    """Keeps one ephemeral znode in place while started; `stop` deletes it if it is ours and ZooKeeper answers.

    A node of the same path that another session owns is taken over once, at the first registration of this object
    (a killed predecessor left it). Later such a node means a second live process of the same name: it is kept, and
    `conflict` is True.
    """

    def __init__(
        self,
        client: KazooClient,
        path: str,
        data: bytes,
        check_s: float = _CHECK_PERIOD_S,
        *,
        rewritten: bool = False,
    ) -> None:
        """`data` empty: the node is created by the first `update`. `rewritten`: its owner updates it so often that it
        needs no watch, and ends the session soon after `stop`, which deletes it."""
        self._is_rewritten = rewritten
        super().__init__(client, f"register {path}", check_s)
        self._path, self._data = path, data
        self._written = b""
        """Data of the node, if it is ours."""
        self._registered_once = False
        self.registered = False
        self.conflict = False

    def update(self, data: bytes) -> None:
        """Change the data of the node."""
        self._data = data
        self.wake()

    def _on_state(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self.registered = False
        super()._on_state(state)

    def _refresh(self) -> None:
        if self._client.connected and self._data:
            self._ensure()
            self.problem = ""

    def _ensure(self) -> None:
        if self.registered and self._renew():
            return
        data = self._data
        try:
            self._client.create(self._path, data, ephemeral=True, makepath=True)
        except NodeExistsError:
            self.registered = self._claim_existing()
        else:
            self.registered = True
        if self.registered:
            self._registered_once, self.conflict, self._written = True, False, data
        if not self._is_rewritten or not self.registered:
            stat = self._client.exists(self._path, watch=self._on_node)  # its deletion wakes us
            if stat is None or (self.registered and not self._is_ours(stat)):
                self.registered = False  # it was deleted or replaced before the watch was set
                self.wake()

    def _on_node(self, event: Any) -> None:
        """Wake up for everything but new data: those are our own, and the next check sets the watch again."""
        if event.type != EventType.CHANGED:
            self.wake()

    def _renew(self) -> bool:
        """Write new data into our node, or check it; False if it is not there or not ours any more."""
        data = self._data
        try:
            if data != self._written:
                stat = self._client.set(self._path, data)
            else:
                stat = self._client.exists(self._path, watch=self._on_node)
        except NoNodeError:
            return False
        self._written = data
        return stat is not None and self._is_ours(stat)

    def _is_ours(self, stat: Any) -> bool:
        return bool(stat.ephemeralOwner == self._client.client_id[0])

    def _claim_existing(self) -> bool:
        """Handle an existing node: update our own, take over once, else report a conflict. True if it is ours now."""
        try:
            data, stat = self._client.get(self._path)
            if self._is_ours(stat):
                if data != self._data:
                    self._client.set(self._path, self._data)
                return True
            if self._registered_once:
                if not self.conflict:
                    log.error("%s belongs to another process (%s): not registered until it ends", self._path, data)
                self.registered, self.conflict = False, True
                return False
            # in one transaction: else a live owner, woken by the deletion, would create it in between
            swap = self._client.transaction()
            swap.delete(self._path, version=stat.version)
            swap.create(self._path, self._data, ephemeral=True)
            return not any(isinstance(result, Exception) for result in swap.commit())
        except NoNodeError:
            self.wake()  # deleted between two calls: retry
            return False

    def _clean_up(self) -> None:
        if self._client.connected and self.registered and not self._is_rewritten:
            with suppress(NoNodeError):
                self._client.delete(self._path)
        self.registered = False


CALL_TIMEOUT_S = 5.0


def is_owned(client: KazooClient, path: str, digest: str) -> bool:
    """Return True if only the user of `digest` (user:password) may change the node or its children; False if the node
    does not exist. Raises KazooException, KazooTimeoutError."""
    user, _, password = digest.partition(":")
    owner = make_digest_acl(user, password, all=True).id
    try:
        acls, _ = client.get_acls_async(path).get(timeout=CALL_TIMEOUT_S)
    except NoNodeError:
        return False
    writers = [acl.id for acl in acls if acl.perms & ~Permissions.READ]
    return bool(writers) and all(one == owner for one in writers)


def is_trusted(client: KazooClient, path: str) -> bool:
    """Return True if published acks in this node may delete data. A process with its own ZooKeeper user trusts only
    nodes that no other user may write. Raises KazooException, KazooTimeoutError."""
    digest = zookeeper_auth()
    return not digest or is_owned(client, path, digest)
