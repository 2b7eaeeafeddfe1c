"""Registration of an Artimon process as an endpoint of the context `artimon`, with an orderly exit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient

import bookkeeper
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.self_metrics import MetricsPublisher, metrics_tables
from bookkeeper.runtime.process_settings import fit_name

CONTEXT = "artimon"
LAST_POLL_TIMEOUT_S = 1.0
"""Timeout of the last poll at exit in seconds: self metrics do not justify the 5 s of applications."""
EXIT_TIMEOUT_S = 5.0
"""Timeout of the exit in seconds, for a ZooKeeper that hangs."""


class SelfMetricsEndpoint(MetricsPublisher):
    """Publishes the variables of `part` under `instance` until `stop` is set, then unregisters in the background.
    `left` is set once the last poll is over or timed out.

    One per process, because it uses the process's default `bookkeeper`. Never blocks on ZooKeeper."""

    def __init__(
        self,
        part: str,
        instance: str,
        zookeeper: str,
        stop: threading.Event,
        clock: Clock = SYSTEM_CLOCK,
        session: KazooClient | None = None,
    ) -> None:
        """`session`: client of the process to register with; None for one of its own."""
        bookkeeper.default().session = session
        bookkeeper.configure(context=CONTEXT, instance=fit_name(instance), zookeeper=zookeeper)
        super().__init__(metrics_tables()[part], bookkeeper.default(), clock, part)
        self.poll_last: Callable[[bytes], bool] = lambda _uuid: False
        """Set by an agent, which polls itself; see ProcessEndpoint."""
        if session is not None:
            bookkeeper.default().start()  # registered before the agent lists its processes: no watch event follows
        self._stop, self.unregistered = stop, threading.Event()
        threading.Thread(target=self._unregister, name="own variables", daemon=True).start()

    def close(self) -> None:
        """Set `stop` and wait until the endpoint is unregistered, at most LEAVE_S."""
        self._stop.set()
        self.unregistered.wait(EXIT_TIMEOUT_S)

    def _unregister(self) -> None:
        self._stop.wait()
        try:
            if (endpoint := bookkeeper.default().endpoint) is not None:
                endpoint.poll_last = self.poll_last
            bookkeeper.default().close(LAST_POLL_TIMEOUT_S)
        finally:
            self.unregistered.set()


@contextmanager
def published_metrics(part: str, instance: str, zookeeper: str, stop: threading.Event) -> Iterator[SelfMetricsEndpoint]:
    """Publish own variables inside the block; at its end set `stop` and unregister."""
    own = SelfMetricsEndpoint(part, instance, zookeeper, stop)
    try:
        yield own
    finally:
        own.close()


def instance_of(part: str, identity: str) -> str:
    """Return the instance, e.g. `collector-0` for the collectors `collector-0` and `0`; `api` for the API `api`."""
    return identity if identity == part or identity.startswith(f"{part}-") else f"{part}-{identity}"
