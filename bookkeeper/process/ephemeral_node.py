"""Keeps one ephemeral znode alive through lost sessions, deleted nodes and restarts of ZooKeeper."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL

CALL_TIMEOUT_S = 10.0
WATCHDOG_S = 15.0
RECONNECT_GRACE_S = 5.0
RETRY_MAX_S = 30.0
log = logging.getLogger("bookkeeper.zookeeper")


class EndpointRegistration:
    """One ephemeral znode and the client whose session owns it. `run` blocks from registration to the end.

    Threads: `run` makes every call to ZooKeeper. kazoo's threads only set `_wake`. `withdraw`, `stop` and `abandon`
    may be called from any thread.
    `registered`: the node has existed at least once. `withdrawn`: after `withdraw`, the node is deleted or deletion
    failed (`deleted` says which)."""

    def __init__(
        self,
        zookeeper: str,
        path: str,
        data: bytes,
        *,
        session_s: float = 10.0,
        reassert_s: float = 60.0,
        digest: str = "",
        session: Any = None,
        is_first: bool = False,
    ):
        """`digest`: user:password for ZooKeeper; the ACL then admits that user only. "": open to everyone. `session`:
        started client of its owner, who reconnects and ends it; None for a client of our own. `is_first`: probably no
        other process is registered below the host key."""
        self.path, self._digest, self._session = path, digest, session
        self._zookeeper, self._data, self._session_s, self._reassert_s = zookeeper, data, session_s, reassert_s
        self._is_first = is_first
        self._wake, self._withdraw, self._stop = threading.Event(), threading.Event(), threading.Event()
        self.registered, self.withdrawn, self.stopped = threading.Event(), threading.Event(), threading.Event()
        self.deleted = self._is_left = False
        self._client: Any = None
        self._started = 0.0

    @property
    def connected(self) -> bool:
        """True while a session exists."""
        return self._client is not None and self._client.state == KazooState.CONNECTED

    def withdraw(self) -> None:
        """Requests deletion of the node; `withdrawn` is set once it is done or has failed."""
        self._withdraw.set()
        self._wake.set()

    def stop(self) -> None:
        """Ends the session and `run`, which sets `stopped`. A node in the session of an owner is deleted only after
        `withdraw`: else it goes when the owner ends the session."""
        self._is_left = self._session is not None and not self._withdraw.is_set()
        self._withdraw.set()
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Registers and keeps the registration until `withdraw`, then waits for `stop`."""
        try:
            self._maintain()
            self._delete()
            self.withdrawn.set()
            self._stop.wait()
        finally:
            self.withdrawn.set()
            self._end_client()
            self.stopped.set()

    def _maintain(self) -> None:
        due, pause = 0.0, 0.5
        while not self._withdraw.is_set():
            self._renew_client()
            changed = self._wake.is_set()
            self._wake.clear()
            if self.connected and (changed or monotonic() >= due):
                if self._try_ensure():
                    due, pause = monotonic() + self._reassert_s, 0.5
                else:
                    due, pause = monotonic() + pause, min(pause * 2, RETRY_MAX_S)
            left = due - monotonic() if self.connected else WATCHDOG_S
            self._wake.wait(min(WATCHDOG_S, max(0.05, left)))

    def _renew_client(self) -> None:
        """Create a client if there is none, or if an error ended its connection loop: kazoo does not reopen it."""
        client = self._client
        if (
            client is not None
            and self._session is None
            and monotonic() - self._started > RECONNECT_GRACE_S
            and client.client_state == KeeperState.CLOSED
        ):
            log.warning("the connection to ZooKeeper at %s ended: reconnecting", self._zookeeper)
            self._end_client()
        if self._client is None:
            self._started = monotonic()
            try:
                self._client = self._connect()
            except Exception as error:  # no thread available, or an address that kazoo cannot parse
                log.warning("no client for ZooKeeper at %r: %s: %s", self._zookeeper, type(error).__name__, error)

    def _connect(self) -> Any:
        if self._session is not None:
            self._session.add_listener(self._on_state)
            return self._session
        client = KazooClient(
            hosts=self._zookeeper,
            timeout=self._session_s,
            connection_retry={"max_tries": -1, "delay": 0.2, "max_delay": RETRY_MAX_S},
            command_retry={"max_tries": 1},
            logger=log,
            **client_auth_options(self._digest),
        )
        client.add_listener(self._on_state)
        accept_older_servers(client)
        client.start_async()
        # At exit kazoo would stop its threads before the last poll, and touch the parent's locks in a forked child.
        atexit.unregister(client.handler.stop)
        return client

    def _on_state(self, *_: object) -> None:
        self._wake.set()

    def _try_ensure(self) -> bool:
        try:
            self._ensure()
        except Exception as error:  # kazoo raises many types; all of them mean: retry later
            log.info("%s is not registered yet: %s: %s", self.path, type(error).__name__, error)
            return False
        self.registered.set()
        return True

    def _ensure(self) -> None:
        """Make sure that the node exists and is ours. Replaces a node of our older session.

        A node in a session of our own is watched. In that of an agent it is not: each restart of an agent would cost
        two messages more, and a deleted node is made again within `reassert_s` all the same."""
        client = self._client
        watch = self._on_state if self._session is None else None
        if not self.registered.is_set() and self._create():
            if watch is not None and client.exists_async(self.path, watch=watch).get(timeout=CALL_TIMEOUT_S) is None:
                raise RuntimeError("the node was deleted before its watch was set")
            return
        stat = client.exists_async(self.path, watch=watch).get(timeout=CALL_TIMEOUT_S)
        if stat is not None and stat.ephemeralOwner == client.client_id[0]:
            return
        if stat is not None:
            _ignoring(NoNodeError, lambda: client.delete_async(self.path).get(timeout=CALL_TIMEOUT_S))
        self._create()
        stat = client.exists_async(self.path, watch=watch).get(timeout=CALL_TIMEOUT_S)
        if stat is None or stat.ephemeralOwner != client.client_id[0]:
            raise RuntimeError("the node changed meanwhile")

    def _create(self) -> bool:
        """Create the node; False if there is one."""
        is_first, self._is_first = self._is_first, False
        if is_first and self._create_with_host():
            return True
        try:
            return self._create_alone()
        except NoNodeError:
            return self._create_with_host() or self._create_alone(makepath=True)

    def _create_with_host(self) -> bool:
        """Create the node and that of its host in one transaction; False if that fails. kazoo's `makepath` would look
        for each node above first."""
        both = self._client.transaction()
        both.create(self.path.rpartition("/")[0])
        both.create(self.path, self._data, ephemeral=True)
        made = both.commit_async().get(timeout=CALL_TIMEOUT_S)
        return not any(isinstance(one, Exception) for one in made)

    def _create_alone(self, makepath: bool = False) -> bool:
        create = self._client.create_async(self.path, self._data, ephemeral=True, makepath=makepath)
        try:
            create.get(timeout=CALL_TIMEOUT_S)
        except NodeExistsError:
            return False
        return True

    def _delete(self) -> None:
        if self._is_left or not self.connected or not self.registered.is_set():
            return
        try:
            _ignoring(NoNodeError, lambda: self._client.delete_async(self.path).get(timeout=1.0))
            self.deleted = True
        except Exception as error:  # the end of the session deletes the node a little later
            log.info("%s was not deleted: %s: %s", self.path, type(error).__name__, error)

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        if client is self._session:
            client.remove_listener(self._on_state)
            return
        try:
            client.stop()
            client.close()
        except Exception as error:
            log.debug("closing the session: %s: %s", type(error).__name__, error)

    def abandon(self) -> None:
        """In a forked child: closes the child's copies of the descriptors and sends nothing on them."""
        client, self._client = self._client, None
        connection = getattr(client, "_connection", None)
        for name in ("_socket", "_read_sock", "_write_sock"):
            sock = getattr(connection, name, None)
            if sock is not None:
                _ignoring(OSError, sock.close)


def accept_older_servers(client: Any) -> None:
    """Let a client reconnect to servers whose data were lost.

    kazoo sends the newest zxid that it ever saw, and a server with a lower one rejects it: after a wipe forever, and
    without reporting an expired session. A client that only holds ephemeral nodes does not need this ordering."""

    def forget(state: str) -> None:
        if state != KazooState.CONNECTED:
            client.last_zxid = 0

    client.add_listener(forget)


def client_auth_options(digest: str) -> dict[str, Any]:
    """Options of a client that authenticates with user:password and creates nodes for that user only; {} for ""."""
    if not digest:
        return {}
    return {"auth_data": [("digest", digest)], "default_acl": CREATOR_ALL_ACL}


def _ignoring(error: type[Exception], action: Callable[[], object]) -> None:
    try:
        action()
    except error:
        pass
