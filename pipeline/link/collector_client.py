"""Client of the collectors: the only way by which a process sends batches to a collector or to another agent."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from thriftpy2.thrift import TApplicationException

from artimon.model.clock import Clock
from bookkeeper.rpc.framed_client import CallTimeoutError
from pipeline.link.answers import MessageAnswer, decode_answers, granted_credit, is_any_accepted
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.collector_link import CallReservation, CollectorLink
from pipeline.link.link_connections import CALL_FAILURES, LinkCall, LinkConnections

log = logging.getLogger(__name__)

_CREDIT_POLL_S = 1.0


class CollectorCallError(RuntimeError):
    """The call was not answered. `endpoint`: the collector called, None if none may be called now. `refused`: it
    answered with an error, as an older version does to an unknown method."""

    def __init__(self, reason: str, endpoint: CollectorEndpoint | None = None, refused: bool = False) -> None:
        super().__init__(reason)
        self.endpoint, self.refused = endpoint, refused


class Reply(NamedTuple):
    """Answers of a collector to the first messages of a call, in order."""

    endpoint: CollectorEndpoint
    answers: list[MessageAnswer]


class CallResult(NamedTuple):
    """End of one call. `value`: the result, None if there was none. `late`: the call timed out. Not `reached`: there
    was no connection, and nothing was sent."""

    value: Any
    timed_out: bool = False
    reached: bool = True
    failure: str = ""
    refused: bool = False
    """The collector answered with an error."""


class CollectorClient:
    """Calls the collectors of one link, from any number of threads at once.

    Locks: `cond` guards the link, and is notified whenever a call ends; no I/O under it."""

    def __init__(self, link: CollectorLink, clock: Clock, cond: threading.Condition | None = None) -> None:
        """`cond`: that of the link's owner, if its decisions depend on more than the link."""
        self.link, self.cond, self._clock = link, cond or threading.Condition(), clock
        self._connections = LinkConnections(self.endpoints, link.collectors.agent)

    def update(self, found: Mapping[str, CollectorEndpoint]) -> None:
        """Take over the endpoints in the registry, by id."""
        with self.cond:
            self.link.update(found)
            self.cond.notify_all()

    def endpoints(self) -> Collection[CollectorEndpoint]:
        """Return the endpoints that may be called."""
        with self.cond:
            return self.link.collectors.endpoints()

    @property
    def is_cut_off(self) -> bool:
        """True if all known collectors have failed since their last answer."""
        with self.cond:
            collectors = self.link.collectors
            return len(collectors) > 0 and not collectors.count_healthy()

    def send(self, messages: Sequence[bytes], within_s: float = math.inf) -> Reply:
        """Send the first of these messages, at least one, as many as one call may take. Waits for credit and answer,
        each for at most `within_s`. Raises CollectorCallError."""
        flight, count = self._begin([len(message) for message in messages], within_s)
        heard = self._finished(flight, "send", messages[:count], min(flight.deadline_s, within_s))
        return Reply(flight.endpoint, heard)

    def call_any(self, method: str, argument: object) -> Any:
        """Call a method of the service that carries no batches. Raises CollectorCallError."""
        with self.cond:
            now = self._clock.monotonic()
            endpoint = self._pick_endpoint(now)
            flight = self.link.reserve(endpoint, 0, now)
            self.link.begin(flight, endpoint, now)
        return self._finished(flight, method, argument, flight.deadline_s)

    def ask(self, method: str, argument: object, timeout_s: float) -> Any:
        """Call a method beside the batches, which may take long. A collector that ends it, or cannot be reached, has
        failed; one that refuses it has not. Raises CollectorCallError."""
        with self.cond:
            endpoint = self._pick_endpoint(self._clock.monotonic())
        heard = self.call(endpoint, method, argument, timeout_s)
        if heard.failure:
            if not heard.refused:
                self._note_failure(endpoint)
            raise CollectorCallError(heard.failure, endpoint, heard.refused)
        return heard.value

    def _note_failure(self, endpoint: CollectorEndpoint) -> None:
        with self.cond:
            self.link.collectors.note_call(endpoint)
            self.link.collectors.note_failure(endpoint, self._clock.monotonic())
            self.cond.notify_all()

    def call(self, endpoint: CollectorEndpoint, method: str, argument: Any, timeout_s: float) -> CallResult:
        """Make one call without updating the link: its owner does that."""
        count = len(argument) if method == "send" else 0
        return self.result(self.begin_call(endpoint, method, argument, timeout_s), count)

    def begin_call(self, endpoint: CollectorEndpoint, method: str, argument: Any, timeout_s: float) -> LinkCall:
        """First half of `call`: its future ends within about `timeout_s`; then call `result`."""
        return self._connections.begin(endpoint, method, argument, timeout_s)

    def result(self, call: LinkCall, count: int = 0) -> CallResult:
        """Second half of `call`: wait for the end of the call. `count`: messages of a `send`."""
        try:
            found = call.result()
            return CallResult(decode_answers(found, count) if call.method == "send" else found)
        except CALL_FAILURES as error:
            failure = f"{call.endpoint.host}:{call.endpoint.port}: {type(error).__name__}: {error}"
            log.warning("collector %s", failure)
            refused = isinstance(error, TApplicationException)
            return CallResult(None, isinstance(error, CallTimeoutError), call.was_connected, failure, refused)

    def close(self) -> None:
        """Close the connections; calls that hang end with them."""
        self._connections.close()

    def _begin(self, sizes: Sequence[int], within_s: float) -> tuple[CallReservation, int]:
        """Begin a call; return it with the number of messages in it."""
        with self.cond:
            until = self._clock.monotonic() + within_s
            while True:
                now = self._clock.monotonic()
                endpoint = self._pick_endpoint(now)
                if count := self.link.count_fitting(endpoint, sizes):
                    flight = self.link.reserve(endpoint, sum(sizes[:count]), now)
                    self.link.begin(flight, endpoint, now)
                    return flight, count
                if now >= until:
                    raise CollectorCallError(f"{endpoint.host}:{endpoint.port} grants no credit", endpoint)
                self.cond.wait(min(_CREDIT_POLL_S, until - now))

    def _pick_endpoint(self, now: float) -> CollectorEndpoint:
        endpoint = self.link.collectors.pick(now)
        if endpoint is None:
            raise CollectorCallError(
                "no collector can be reached" if len(self.link.collectors) else "no collector is known"
            )
        return endpoint

    def _finished(self, flight: CallReservation, method: str, argument: Any, timeout_s: float) -> Any:
        """Return the result of a call that began; updates the link however the call ends."""
        heard = CallResult(None, failure="internal error")
        try:
            heard = self.call(flight.endpoint, method, argument, timeout_s)
        finally:
            with self.cond:
                self._update_link(flight, method, heard)
                self.cond.notify_all()
        if heard.failure:
            raise CollectorCallError(heard.failure, flight.endpoint)
        return heard.value

    def _update_link(self, flight: CallReservation, method: str, heard: CallResult) -> None:
        now = self._clock.monotonic()
        if heard.failure:
            self.link.end_unanswered(flight, now, heard.timed_out, heard.reached)
        elif method == "send":
            self.link.end_answered(flight, granted_credit(heard.value), now, is_any_accepted(heard.value))
        else:
            self.link.cancel(flight)
            self.link.collectors.note_answer(flight.endpoint)
            self.link.timer.record_answer(now - flight.began)
