"""Network service of a collector, for any target of its writes: server, registration in ZooKeeper, health file."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient

from artimon.model.clock import Clock
from artimon.runtime.exposure import require_protection
from artimon.runtime.health import HealthFile, Publish
from artimon.runtime.settings import security
from artimon.runtime.zookeeper_client import EphemeralNode, close_client
from pipeline.collector.link_server import LinkServer
from pipeline.link.collector_choice import COLLECTORS_PATH

log = logging.getLogger(__name__)


@contextmanager
def naming_address(who: str, host: str, port: int) -> Iterator[None]:
    """Add to an OSError in the context the process and the address that it cannot listen on."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{who} cannot listen on {host}:{port}: {error.strerror}") from error


class Holding:
    """Budget of at most `most` bytes of calls in flight; a larger call is admitted when it is alone. Thread-safe.

    Invariant: `bytes` is the sum of the bytes taken and not given back."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> bool:
        """Reserve `size` bytes and return True, or return False if they do not fit. After True call `give_back`."""
        with self._lock:
            if self.bytes and self.bytes + size > self._most:
                return False
            self.bytes += size
            return True

    def give_back(self, size: int) -> None:
        """Release the bytes of a call that has its answer."""
        with self._lock:
            self.bytes -= size


class ServiceSettings(Protocol):
    """Identity and address settings of a collector."""

    @property
    def id(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def insecure(self) -> bool: ...

    @property
    def health(self) -> Path | None: ...


class CollectorService:
    """Listens from the beginning; agents discover it from `registration.start()` on. `stop` ends all of it."""

    def __init__(
        self,
        server: LinkServer,
        place: ServiceSettings,
        zookeeper: KazooClient,
        clock: Clock,
        publish: Publish,
        **more: str,
    ) -> None:
        """Start `server` and `zookeeper`. `more`: fields of the registration besides host and port. Raises OSError,
        which names the port, if that is taken; UnprotectedError, if other machines reach it without authentication."""
        self.id = place.id
        self.warnings = require_protection(f"collector {place.id}", place.host, security(), insecure=place.insecure)
        self.health = HealthFile(place.health, f"collector-{place.id}", clock, publish)
        with naming_address(f"collector {place.id}", place.host, place.port):
            self.port = server.start()
        self._server, self._zookeeper = server, zookeeper
        data = json.dumps({"host": place.host, "port": self.port, "pid": os.getpid(), **more}).encode()
        self.registration = EphemeralNode(zookeeper, f"{COLLECTORS_PATH}/{place.id}", data)
        log.info("collector %s serves on %s:%d", place.id, place.host, self.port)
        zookeeper.start_async()

    def report(self, state: str, problems: Sequence[str], **figures: Any) -> None:
        """Write the health file if it is due, with the non-empty texts of `problems`. `figures` must be JSON."""
        problem = ""
        if self.registration.conflict:
            problem = "another collector is registered under this id"
        elif not self.registration.registered:
            problem = "not registered in ZooKeeper: agents that start now do not find it"
        if not self.health.is_due(state, problem):
            return
        self.health.write(
            state,
            problem,
            port=self.port,
            problems=[text for text in problems if text],
            warnings=self.warnings,
            **self._server.figures,
            **figures,
        )

    def stop(self, close: Callable[[], None]) -> None:
        """Stop; `close` closes the target of the writes, after the last call and before the ZooKeeper client closes."""
        self.registration.stop(2.0)
        self._server.stop(2.0)
        close()
        close_client(self._zookeeper)
