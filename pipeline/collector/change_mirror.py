"""Last changes of the configuration in ZooKeeper, watched by a collector for all of its agents."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from pipeline.link.config_changes import CHANGES_PATH, ConfigChanges

log = logging.getLogger(__name__)
CHECK_PERIOD_S = 60.0
CALL_TIMEOUT_S = 5.0


class ChangeMirror(ZooKeeperWatcher):
    """Keeps the present changes. `changes` is None while they may be old: before the first read, without a session."""

    def __init__(self, client: KazooClient) -> None:
        super().__init__(client, "configuration mirror", CHECK_PERIOD_S)
        self._changes: ConfigChanges | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def changes(self) -> ConfigChanges | None:
        return self._changes if self._client.connected else None

    def _on_state(self, state: str) -> None:
        self._changes = None
        super()._on_state(state)

    def _refresh(self) -> None:
        if not self._client.connected:
            return
        before, self._changes = self._changes, self._read()
        if self._changes != before:
            self.on_change()

    def _read(self) -> ConfigChanges:
        while True:
            try:
                data, _ = self._client.get_async(CHANGES_PATH, watch=self._on_event).get(timeout=CALL_TIMEOUT_S)
            except NoNodeError:
                exists = self._client.exists_async(CHANGES_PATH, watch=self._on_event).get(timeout=CALL_TIMEOUT_S)
                if exists is None:
                    return ConfigChanges()
                continue
            return ConfigChanges.from_json(data)
