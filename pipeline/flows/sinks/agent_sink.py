"""Sending end of a hop, to the source `agent` of another agent or to the platform's collectors.

Delivered means that the next agent has committed; with `ack = "terminal"`, that its sinks have the event batches."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from artimon.model.batch import NO_LANE, BatchError, BatchId
from artimon.model.batch_codec import verify
from artimon.runtime.text import parse_address
from pipeline.control.group_directory import GroupDirectory
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch, with_bytes
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, Outside
from pipeline.flows.spi import Figures, SinkFailed
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.collector_client import CollectorCallError, CollectorClient
from pipeline.link.collector_link import MAX_CALL_MESSAGES, CollectorLink

_MIN_ASK_INTERVAL_S = 0.05
_MAX_ASK_INTERVAL_S = 1.0


class _NextAgentFull(SinkFailed):
    """The next agent has no room for all `messages` of a call."""

    def __init__(self, reason: str, messages: int) -> None:
        super().__init__(reason)
        self.messages = messages


class AgentSinkOptions(Options):
    """Either `to`, addresses of next agents, or `group`, the name under which they register in ZooKeeper (`collectors`:
    the platform's own). `ack`: delivered once the next agent has committed, or once its sinks have it."""

    to: list[str] = Field(default_factory=list)
    group: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    ack: Literal["next", "terminal"] = "next"
    least_s: float = Field(default=5.0, gt=0, le=60)
    most_s: float = Field(default=60.0, gt=0, le=300)

    @field_validator("to")
    @classmethod
    def _addresses(cls, to: list[str]) -> list[str]:
        for text in to:
            parse_address(text)
        return to

    @model_validator(mode="after")
    def _one_of(self) -> AgentSinkOptions:
        if bool(self.to) == bool(self.group):
            raise ValueError("set either `to` or `group`")
        return self


class AgentSink:
    """One call at a time, with a timeout from measured response times. A failed address gets a back-off of up to 10 s,
    and the next one is tried."""

    def __init__(self, options: AgentSinkOptions, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self._client = CollectorClient(CollectorLink.of(context.agent, options.least_s, options.most_s), context.clock)
        self._directory: GroupDirectory | None = None
        self._encoded: dict[BatchId, bytes] = {}
        """Bytes made here for event batches whose delivery has not ended: a retry must send the same bytes."""
        self._accepted: set[BatchId] = set()
        """Event batches of the current delivery that a next agent has: retries to any agent leave them out."""
        self._stop = threading.Event()
        self.sent = self.bytes = 0
        self.failures: Counter[str] = Counter()

    def start(self) -> None:
        """Raises FlowError for a group without ZooKeeper. The next agents may be unreachable."""
        self._stop.clear()
        if group := self._options.group:
            # the agent's directory has the last known members on disk, and one session for all sinks
            self._directory = self._context.directory("sink agent", group)
            self._refresh_members()
        else:
            self._client.update({text: CollectorEndpoint(*parse_address(text)) for text in self._options.to})

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        event_batches = self._with_bytes(event_batches)
        self._send_all([event_batch for event_batch in event_batches if event_batch.id not in self._accepted])
        if self._options.ack == "terminal":
            self._await_delivery([event_batch.id for event_batch in event_batches if event_batch.id is not None])
        self._encoded.clear()
        self._accepted.clear()

    def stop(self, deadline_s: float) -> None:
        del deadline_s  # closing connections does not block
        self._stop.set()
        self._client.close()

    def figures(self) -> Figures:
        problem, link = self._directory.problem(self._options.group) if self._directory else "", self._client.link
        return {
            "sent": self.sent,
            "bytes": self.bytes,
            "failures": {**self.failures, **link.unanswered_calls},
            "agents": len(link.collectors),
            "agents_up": link.collectors.count_healthy(),
            "deadline_ms": round(link.timer.deadline() * 1000),
            "problems": [problem] if problem else [],
        }

    def _with_bytes(self, event_batches: Sequence[EventBatch]) -> list[EventBatch]:
        """Encode event batches that have no bytes, and keep these until delivery: an identity always has the same
        bytes."""
        made = []
        for event_batch in event_batches:
            if event_batch.data is None and event_batch.id is not None:
                data = self._encoded.get(event_batch.id)
                if data is None:
                    data = with_bytes(event_batch, self._context.flow, self._clock.now_ms()).data or b""
                    self._encoded[event_batch.id] = data
                event_batch = EventBatch(event_batch.events, event_batch.id, data)
            if event_batch.data is None:
                raise SinkFailed("an event batch without identity: the channel must give it one", retry=False)
            made.append(event_batch)
        return made

    def _send_all(self, event_batches: Sequence[EventBatch]) -> None:
        """Send all; halve the call as long as the next agent has no room for it."""
        at, most = 0, MAX_CALL_MESSAGES
        while at < len(event_batches):
            try:
                at += self._send(event_batches[at : at + most])
            except _NextAgentFull as full:
                if full.messages == 1:
                    raise
                most = full.messages // 2

    def _send(self, event_batches: Sequence[EventBatch]) -> int:
        """Make one call; return the number of leading event batches that the next agent has now."""
        self._refresh_members()
        try:
            endpoint, answers = self._client.send([event_batch.data or b"" for event_batch in event_batches])
        except CollectorCallError as error:
            raise self._unreachable_error(error) from error
        for event_batch, answer in zip(event_batches, answers, strict=False):
            if answer.position is None:
                self._refused(endpoint, event_batch, answer.reason, len(answers))
            if event_batch.id is not None and event_batch.id.lane != NO_LANE:  # announcements share an identity
                self._accepted.add(event_batch.id)
        self._context.progress()
        self.sent += len(answers)
        self.bytes += sum(len(event_batch.data or b"") for event_batch in event_batches[: len(answers)])
        return len(answers)

    def _refused(self, endpoint: CollectorEndpoint, event_batch: EventBatch, reason: str, messages: int) -> None:
        kind = reason.split(":", 1)[0]
        self.failures[kind] += 1
        text = f"{endpoint.host}:{endpoint.port} refuses {event_batch.id}: {reason}"
        if kind == "full":
            raise _NextAgentFull(text, messages)
        raise SinkFailed(text, retry=kind != "damaged" or _is_intact(event_batch))

    def _await_delivery(self, ids: list[BatchId]) -> None:
        """Wait until the next agent's sinks have all of them, asking at growing intervals."""
        wait, missing, last = _MIN_ASK_INTERVAL_S, ids, self._clock.monotonic()
        while missing:
            if self._stop.is_set():
                raise SinkFailed("stopped before the end of the flow had all event batches")
            answers = self._ask_delivered(missing)
            left = [id for id, fine in zip(missing, answers, strict=False) if not fine]
            now = self._clock.monotonic()
            last = now if len(left) < len(missing) else last
            missing = left
            if missing and now - last > self._options.most_s:
                raise SinkFailed(f"the end of the flow does not have {len(missing)} of {len(ids)} event batches yet")
            if missing:
                self._context.progress()
                self._clock.wait(self._stop, wait)
                wait = min(_MAX_ASK_INTERVAL_S, wait * 1.5)

    def _ask_delivered(self, ids: list[BatchId]) -> list[bool]:
        """Ask the next agent which of these event batches its sinks have stored."""
        self._refresh_members()
        try:
            return list(self._client.call_any("delivered", [str(id) for id in ids]))
        except CollectorCallError as error:
            raise self._unreachable_error(error) from error

    def _refresh_members(self) -> None:
        if self._directory is not None:
            self._client.update(self._directory.members(self._options.group))

    def _unreachable_error(self, error: CollectorCallError) -> SinkFailed:
        if error.endpoint is not None:
            return SinkFailed(str(error))
        self.failures["nobody"] += 1
        known = len(self._client.link.collectors)
        return SinkFailed("no next agent can be reached" if known else "no next agent is known: is one registered?")


def _is_intact(event_batch: EventBatch) -> bool:
    """True if the bytes are intact here, so that they were damaged on the way."""
    try:
        verify(event_batch.data or b"")
    except BatchError:
        return False
    return True


AGENT = Component("agent", AgentSinkOptions, AgentSink, terminal=False, outside={"to": Outside.HOST})
