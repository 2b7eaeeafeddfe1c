"""Makes a process of Artimon an endpoint of the context `artimon`, and lets it leave in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import bookkeeper
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.own import Publisher
from artimon.runtime.own_tables import TABLES
from bookkeeper.runtime.settings import fitting

CONTEXT = "artimon"
LAST_POLL_S = 1.0
"""So long a process that ends waits for its last poll: its own figures are not worth the 5 s that applications get."""
LEAVE_S = 5.0
"""The longest that leaving takes, when ZooKeeper hangs."""


class OwnProcess(Publisher):
    """The variables of `part` (see TABLES) under `instance`, until `stop` is set: then they leave, beside the rest of
    the process's end. `left` is set once their last poll is over or given up.

    One for each process, as it uses the process's one `bookkeeper`. Nothing here waits for ZooKeeper."""

    def __init__(
        self, part: str, instance: str, zookeeper: str, stop: threading.Event, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        bookkeeper.configure(context=CONTEXT, instance=fitting(instance), zookeeper=zookeeper)
        super().__init__(TABLES[part], bookkeeper.default(), clock)
        self._stop, self.left = stop, threading.Event()
        threading.Thread(target=self._leave, name="own variables", daemon=True).start()

    def end(self) -> None:
        """Set `stop` and wait until the variables have left."""
        self._stop.set()
        self.left.wait(LEAVE_S)

    def _leave(self) -> None:
        self._stop.wait()
        try:
            bookkeeper.default().close(LAST_POLL_S)
        finally:
            self.left.set()


@contextmanager
def publishing(part: str, instance: str, zookeeper: str, stop: threading.Event) -> Iterator[OwnProcess]:
    """An OwnProcess that has left when the block ends; at its end `stop` is set."""
    own = OwnProcess(part, instance, zookeeper, stop)
    try:
        yield own
    finally:
        own.end()


def instance_of(part: str, identity: str) -> str:
    """`collector-0` for the collector `collector-0` and for `0`."""
    return identity if identity.startswith(f"{part}-") else f"{part}-{identity}"
