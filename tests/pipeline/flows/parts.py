"""Helpers of the tests of flows: small events, sinks that record or fail, flows in a folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from artimon.model.batch import BatchId
from pipeline.flows.config.flow_file import parse_flows
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, events_of
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, ComponentKind, Registry
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.runtime.flow import Flow
from pipeline.flows.spi import ChannelFull, Figures, SinkFailed
from tests.waiting import eventually


def event(n: int, size: int = 0) -> Event:
    return Event({"n": str(n)}, f"event {n}".encode().ljust(size, b"."))


def event_batch(*numbers: int, size: int = 0) -> EventBatch:
    return EventBatch(tuple(event(n, size) for n in numbers))


def numbers_of(event_batches: Sequence[EventBatch]) -> list[int]:
    return [int(e.headers["n"]) for p in event_batches for e in events_of(p)]


class ListSink:
    """Records delivered events; fails with the text of `fails`; waits while `gate` is closed."""

    def __init__(self) -> None:
        self.event_batches: list[EventBatch] = []
        self.calls = 0
        self.fails: Callable[[Sequence[EventBatch]], SinkFailed | Exception | None] = lambda _: None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.started = self.stopped = 0

    @property
    def numbers(self) -> list[int]:
        return numbers_of(self.event_batches)

    @property
    def ids(self) -> list[BatchId | None]:
        return [p.id for p in self.event_batches]

    def start(self) -> None:
        self.started += 1

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        self.calls += 1
        self.entered.set()
        if not self.gate.wait(60):
            raise SinkFailed("the gate stayed closed")
        error = self.fails(event_batches)
        if error is not None:
            raise error
        self.event_batches += event_batches

    def stop(self, deadline_s: float) -> None:
        self.stopped += 1

    def figures(self) -> Figures:
        return {"parcels": len(self.event_batches)}

    def down(self, reason: str = "down") -> None:
        self.fails = lambda _: SinkFailed(reason)

    def up(self) -> None:
        self.fails = lambda _: None


class ListOptions(Options):
    """`id`: the sink of the test to use."""

    id: str = "one"


class Sinks(dict[str, ListSink]):
    """List sinks of a test by id, made at their first use."""

    def __missing__(self, id: str) -> ListSink:
        made = self[id] = ListSink()
        return made


def registry(sinks: Sinks, **more: Component) -> Registry:
    """The product's registry with the sink `list`, and the sources of `more` by their names."""
    found = builtin_registry()
    found.add(ComponentKind.SINK, Component("list", ListOptions, lambda options, _: sinks[options.id]))
    found.add(ComponentKind.SOURCE, *more.values())
    return found


def context(folder: Path, sinks: Sinks, agent: str = "agent-1", shared: Mapping[str, Any] | None = None) -> Context:
    return Context(agent, "", "", folder, registry(sinks), shared=dict(shared or {}))


def flow(text: str, folder: Path, sinks: Sinks, agent: str = "agent-1") -> Flow:
    """The only flow in `text` (TOML)."""
    (config,) = parse_flows(text, registry(sinks))
    return Flow(config, context(folder, sinks, agent))


def until_full(put: Callable[[int], None]) -> int:
    """Call `put` with 0, 1, 2, … until it raises ChannelFull; return the number of successful calls."""
    for count in range(10_000):
        try:
            put(count)
        except ChannelFull:
            return count
    raise AssertionError("it takes everything")


def eventually_has(sink: ListSink, numbers: Sequence[int], seconds: float = 20.0) -> None:
    """Wait until the sink has exactly these, in order."""
    eventually(lambda: len(sink.numbers) >= len(numbers), f"{len(numbers)} events", seconds)
    assert sink.numbers == list(numbers)
