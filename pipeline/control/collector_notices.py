"""Notices from the collector of an agent: ack states, other collectors, changes of its configuration. One call waits
for them, on the connection that carries the batches. While no collector sends notices, ZooKeeper is read."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from artimon.model.ack_state import AckState
from artimon.model.clock import Clock
from artimon.runtime.partition_counts import ACKS_PATH
from pipeline.link.collector_choice import CollectorEndpoint, parse_endpoints
from pipeline.link.collector_client import CollectorCallError
from pipeline.link.config_changes import ConfigChanges
from pipeline.link.idl import collector_idl

log = logging.getLogger(__name__)

WATCH_TIMEOUT_S = 90.0
"""Above the time for which a collector holds a call (pipeline/collector/notice_board.py)."""
GRACE_S = 15.0
"""Seconds without a collector after which ZooKeeper is read, and up to twice as many, by chance: the agents of a
collector that ends find another one, and do not all turn to ZooKeeper."""
CUT_OFF_SHARE = 0.2
"""Share of that time if all known collectors have failed: only ZooKeeper can name another one."""
BASELINE_S = 5.0
"""Longest wait in seconds for the first read of the configuration, which tells from where changes count."""
MIN_RETRY_S, MAX_RETRY_S = 0.5, 5.0
UNKNOWN_RETRY_S = 60.0
"""Seconds until a collector is asked again that does not have the method."""


class NewsClient(Protocol):
    """Client of the collectors."""

    def ask(self, method: str, argument: object, timeout_s: float) -> Any: ...

    @property
    def is_cut_off(self) -> bool:
        """True if all known collectors have failed."""
        ...


class CollectorNotices:
    """Threads: one, which waits for notices. `acks`, `is_active` may be used from any thread.

    `acks` is replaced, never changed."""

    def __init__(self, client: NewsClient, scopes: Sequence[str], clock: Clock) -> None:
        """`scopes`: as in the IDL. The grace period begins here: an agent that starts waits for its collector."""
        self._client, self._scopes, self._clock = client, list(scopes), clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._states: dict[str, AckState] = {}
        self._acks: Mapping[str, AckState] | None = None
        self._collectors: Mapping[str, CollectorEndpoint] | None = None
        self._digest = 0
        self._changes: ConfigChanges | None = None
        """Last changes that the agent has read; None before the first read of its configuration."""
        self._lost_at = clock.monotonic()
        self._full_grace_s = self._grace_s = random.uniform(GRACE_S, 2 * GRACE_S)
        self._known = self._was_known = self._is_told = False
        self._baseline = threading.Event()
        """Set once the agent has read its configuration."""
        self.on_acks: Callable[[], None] = lambda: None
        self.on_config: Callable[[], None] = lambda: None
        """Called when ack states, or the configuration, may have changed, and when the collector is lost or found."""

    @property
    def acks(self) -> Mapping[str, AckState] | None:
        """Ack states of the collector; None if they must be read in ZooKeeper."""
        return self._acks if self.is_active else None

    @property
    def collectors(self) -> Mapping[str, CollectorEndpoint] | None:
        """Addresses of the collectors by id; None before the first list."""
        return self._collectors if self.is_active else None

    @property
    def is_active(self) -> bool:
        """True while a collector sends notices, or while one is expected within the grace period."""
        return self._known or self._clock.monotonic() < self._lost_at + self._grace_s

    @property
    def tells_config(self) -> bool:
        """True if a collector sends changes of the configuration, so that ZooKeeper need not be watched. False until
        the first notice, because an agent that starts may have no collector."""
        return self._was_known and self.is_active

    def config_read(self, changes: ConfigChanges) -> None:
        """Note the changes that were read, before the configuration was."""
        self._changes = changes
        self._baseline.set()

    @property
    def needs_changes(self) -> bool:
        """True if the agent must read the changes itself, because no collector has sent them yet."""
        return self._changes is None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread; a call that waits is abandoned."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def watch_once(self) -> float:
        """Wait for one notice; return the seconds to wait before the next call."""
        self._clock.wait(self._baseline, BASELINE_S)
        seen, asked = self._changes or ConfigChanges(), self._changes is not None
        known = collector_idl().Known(
            {topic_id: state.version for topic_id, state in self._states.items()},
            seen.lineage,
            seen.number,
            self._scopes if asked else [],
            self._digest,
        )
        try:
            notice = self._client.ask("watch", known, WATCH_TIMEOUT_S)
        except CollectorCallError as error:
            log.debug("no news from a collector: %s", error)
            self._lose(0.0 if error.refused else CUT_OFF_SHARE if self._client.is_cut_off else 1.0)
            return UNKNOWN_RETRY_S if error.refused else random.uniform(MIN_RETRY_S, MAX_RETRY_S)
        self._take_acks(notice.acks)
        self._take_collectors(notice)
        if asked:
            self._take_config(notice)
        if not (notice.known and notice.acks.known):
            self._lose()
            return random.uniform(MIN_RETRY_S, MAX_RETRY_S)
        if not self._known:
            self._known, self._was_known, self._is_told = True, True, False
            self.on_acks()
        return 0.0

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pause_s = self.watch_once()
            except Exception:  # a thread that dies would leave the agent without acks
                log.exception("notices")
                pause_s = MAX_RETRY_S
            if pause_s:
                self._clock.wait(self._stop, pause_s)
            self._tell_of_end()

    def _take_acks(self, told: Any) -> None:
        if not told.known:
            return
        changed = {one.topic_id: parse_state(one.topic_id, one.data, one.version) for one in told.changed}
        now = {topic_id: changed.get(topic_id, self._states.get(topic_id)) for topic_id in told.topics}
        before, self._states = self._states, {id: state for id, state in now.items() if state is not None}
        if self._states != before or self._acks is None:
            self._acks = dict(self._states)
            self.on_acks()

    def _take_collectors(self, notice: Any) -> None:
        if not notice.collectors:
            return
        self._digest = notice.digest
        self._collectors = parse_endpoints((one.id, one.data) for one in notice.collectors)
        self.on_acks()

    def _take_config(self, notice: Any) -> None:
        if notice.known:
            self._changes = ConfigChanges(notice.lineage, notice.change)
            if notice.scopes:
                self.on_config()

    def _lose(self, share: float = 1.0) -> None:
        """Begin the grace period, or shorten it to a `share`: 0.0 for a collector that never sends notices."""
        if self._known:
            self._known, self._lost_at = False, self._clock.monotonic()
            self._full_grace_s = random.uniform(GRACE_S, 2 * GRACE_S)
            self._grace_s = self._full_grace_s
        self._grace_s = min(self._grace_s, self._full_grace_s * share)

    def _tell_of_end(self) -> None:
        """Wake, once, the threads that must read ZooKeeper from now on."""
        if not self.is_active and not self._is_told:
            self._is_told = True
            self._changes, self._collectors, self._digest = None, None, 0
            self.on_acks()
            self.on_config()


def parse_state(topic_id: str, data: bytes, version: int) -> AckState | None:
    """Return the state in a node, None if it is invalid."""
    try:
        state = AckState.from_json(data, version)
    except ValueError as error:
        log.error("%s/%s: %s", ACKS_PATH, topic_id, error)
        return None
    return state if state.topic_id == topic_id else None
