"""Sinks without external resources."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pydantic import Field

from pipeline.flows.event import EventBatch, events_of
from pipeline.flows.options import NoOptions, Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import Figures

log = logging.getLogger(__name__)


class NullSink:
    """Counts and drops event batches."""

    def __init__(self) -> None:
        self.event_batches = 0

    def start(self) -> None:
        """Nothing to open."""

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        self.event_batches += len(event_batches)

    def stop(self, deadline_s: float) -> None:
        """Nothing to close."""

    def figures(self) -> Figures:
        return {"parcels": self.event_batches}


class LogOptions(Options):
    """`bytes`: logged length of a body. `events`: most events logged of one delivery; the others are counted."""

    bytes: int = Field(default=200, ge=0, le=64 * 1024)
    events: int = Field(default=10, ge=0, le=10_000)


class LogSink:
    """Writes events to the agent's log, for debugging."""

    def __init__(self, options: LogOptions, name: str) -> None:
        self._options, self._name = options, name
        self.event_batches = self.left_out = 0

    def start(self) -> None:
        """Nothing to open."""

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        room = self._options.events
        for event_batch in event_batches:
            events = events_of(event_batch)
            if event_batch.data is not None and not events:
                log.info("%s: %s, %d bytes", self._name, event_batch.id, len(event_batch.data))
            for event in events[:room]:
                log.info("%s: %s %r", self._name, dict(event.headers), event.body[: self._options.bytes])
            self.left_out += max(0, len(events) - room)
            room = max(0, room - len(events))
        self.event_batches += len(event_batches)

    def stop(self, deadline_s: float) -> None:
        """Nothing to close."""

    def figures(self) -> Figures:
        return {"parcels": self.event_batches, "left_out": self.left_out}


LOG = Component("log", LogOptions, lambda options, context: LogSink(options, context.flow), outside={})
NULL = Component("null", NoOptions, lambda _, __: NullSink(), outside={})
