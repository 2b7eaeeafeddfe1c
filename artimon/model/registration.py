"""An ephemeral znode that stays: made when the session is there, again after every new session, deleted at stop."""

from __future__ import annotations

import logging
import threading
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from artimon.settings import zookeeper_auth
from bookkeeper.registration import access, outlive_data

log = logging.getLogger(__name__)

_CHECK_S = 30.0


def zookeeper_client(hosts: str, timeout_s: float = 10.0) -> KazooClient:
    """A client that goes on trying to connect for ever, at most 30 s apart; the caller starts it with `start_async`. It
    shows what ARTIMON_ZOOKEEPER_AUTH says, and makes its nodes for that user alone. Raises SettingsError."""
    client = KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        connection_retry={"max_tries": -1, "max_delay": 30, "delay": 0.2, "backoff": 2},
        command_retry={"max_tries": 3, "max_delay": 2},
        **access(zookeeper_auth()),
    )
    outlive_data(client)
    return client


class Registration:
    """Keeps one ephemeral znode in place while started.

    A node of the same path that another session owns is taken over once, at the first registration of this object
    (a killed predecessor left it); later such a node means a second living process of the same name: it stays, and
    `conflict` says so.
    Thread: one, which alone talks to ZooKeeper; the state listener only wakes it. ZooKeeper may be absent at any time.
    """

    def __init__(self, client: KazooClient, path: str, data: bytes, check_s: float = _CHECK_S) -> None:
        self._client, self._path, self._data, self._check_s = client, path, data, check_s
        self._wake, self._stop = threading.Event(), threading.Event()
        self._registered_once = False
        self.registered = False
        self.conflict = False
        self._thread = threading.Thread(target=self._run, name=f"register {path}", daemon=True)

    def start(self) -> None:
        """Begin to register; returns at once."""
        self._client.add_listener(self._on_state)
        self._thread.start()
        self._wake.set()

    def update(self, data: bytes) -> None:
        """Change what stands in the node."""
        self._data = data
        self._wake.set()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Delete the node if it is ours and ZooKeeper answers; never longer than `timeout_s`."""
        self._stop.set()
        self._wake.set()
        self._client.remove_listener(self._on_state)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _on_state(self, state: str) -> None:
        # kazoo calls this in its own thread, which must not block: waking the other thread is all it does
        if state == KazooState.CONNECTED:
            self._wake.set()
        else:
            self.registered = False

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._client.connected:
                self._try(self._ensure)
            self._wake.wait(self._check_s)
            self._wake.clear()
        if self._client.connected:
            self._try(self._remove)

    def _on_event(self, _event: Any) -> None:
        self._wake.set()

    def _try(self, action: Any) -> None:
        try:
            action()
        except (KazooException, OSError, TimeoutError) as error:
            log.info("registration of %s waits: %s: %s", self._path, type(error).__name__, error)
        except Exception:  # the thread must outlive anything a client library raises
            log.exception("registration of %s", self._path)

    def _ensure(self) -> None:
        try:
            self._client.create(self._path, self._data, ephemeral=True, makepath=True)
        except NodeExistsError:
            self.registered = self._settle()
        else:
            self.registered = True
        if self.registered:
            self._registered_once, self.conflict = True, False
        self._client.exists(self._path, watch=self._on_event)  # whoever deletes it wakes us

    def _settle(self) -> bool:
        """The node is there: whose is it? True once it is ours and up to date."""
        try:
            data, stat = self._client.get(self._path)
            if stat.ephemeralOwner == self._client.client_id[0]:
                if data != self._data:
                    self._client.set(self._path, self._data)
                return True
            if self._registered_once:
                if not self.conflict:
                    log.error("%s belongs to another process (%s): this one stays out until it goes", self._path, data)
                self.registered, self.conflict = False, True
                return False
            # in one step: its living owner, woken by the deletion, would otherwise come in between
            swap = self._client.transaction()
            swap.delete(self._path, version=stat.version)
            swap.create(self._path, self._data, ephemeral=True)
            return not any(isinstance(result, Exception) for result in swap.commit())
        except NoNodeError:
            self._wake.set()  # gone between two looks: look again
            return False

    def _remove(self) -> None:
        try:
            _, stat = self._client.get(self._path)
            if stat.ephemeralOwner == self._client.client_id[0]:
                self._client.delete(self._path)
        except NoNodeError:
            pass
        self.registered = False
