"""Client of the Thrift source (events.thrift) in the style of an application."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from thriftpy2.thrift import TException

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.settings import security
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from pipeline.flows.event import Event
from pipeline.flows.sources.thrift_source import events_idl
from pipeline.link.timer import backoff_s


class EventsRefused(RuntimeError):
    """The flow refused these events. The text holds the reason."""


class EventsClient:
    """Sends events to a flow, each call once in spite of lost replies. For one thread at a time."""

    def __init__(self, host: str, port: int, timeout_s: float = 30.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = FramedClient(events_idl().Events, host, port, timeout_s, security=security())
        self._clock, self._never = clock, threading.Event()
        self._producer, self._sequence = secrets.token_bytes(16), 0

    def send(self, events: Sequence[Event], patience_s: float = 60.0) -> None:
        """Return once the flow has the events. Retries without room or connection for `patience_s`.

        Raises EventsRefused: the flow certainly lacks the events only if the reason begins with `bad` or `full`."""
        idl, until, failures = events_idl(), self._clock.monotonic() + patience_s, 0
        rows = [idl.Event(dict(event.headers), event.body) for event in events]
        sequence, now = self._sequence, self._clock.now_ms()
        self._sequence += 1
        while True:
            try:
                taken = self._client.call("append", self._producer, sequence, now, rows)
                reason = "" if taken.ok else str(taken.reason)
            except (FramedError, TException, OSError) as error:
                reason = f"lost: {error}"
            if not reason:
                return
            failures += 1
            wait = backoff_s(failures, 0.05, 2.0)
            if reason.startswith("bad:") or self._clock.monotonic() + wait > until:
                raise EventsRefused(reason)
            self._clock.wait(self._never, wait)

    def close(self) -> None:
        self._client.close()
