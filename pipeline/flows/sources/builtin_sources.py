"""Sources without external resources, for trials, tests and measurements."""

from __future__ import annotations

from pydantic import Field

from pipeline.flows.event import Event, batch_events
from pipeline.flows.options import NoOptions, Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import Figures, Put


class SequenceOptions(Options):
    """`count` numbers from `first` (0: endless), `batch` at a time, each as text in a body of at least `size` bytes."""

    first: int = Field(default=0, ge=0)
    count: int = Field(default=0, ge=0)
    batch: int = Field(default=100, ge=1, le=10_000)
    size: int = Field(default=0, ge=0, le=200_000)


class SequenceSource:
    """Pollable: one number an event. A number is repeated only if its put failed."""

    def __init__(self, options: SequenceOptions) -> None:
        self._options = options
        self.next = options.first

    def start(self) -> None:
        """Nothing to open."""

    def poll(self, put: Put) -> bool:
        options = self._options
        end = self.next + min(options.batch, max(1, 16 * 1024 * 1024 // max(1, options.size)))
        if options.count:
            end = min(end, options.first + options.count)
        if end <= self.next:
            return False
        put(batch_events(Event({}, str(n).encode().ljust(options.size)) for n in range(self.next, end)))
        self.next = end
        return True

    def stop(self, deadline_s: float) -> None:
        """Nothing to close."""

    def figures(self) -> Figures:
        return {"next": self.next}


class ListOptions(Options):
    """Bodies as text, each sent once."""

    events: list[str] = Field(max_length=10_000)
    headers: dict[str, str] = Field(default_factory=dict)


class ListSource:
    """Pollable: the events of the configuration, once."""

    def __init__(self, options: ListOptions) -> None:
        self._options, self._done = options, False

    def start(self) -> None:
        """Nothing to open."""

    def poll(self, put: Put) -> bool:
        if self._done:
            return False
        put(batch_events(Event(self._options.headers, text.encode()) for text in self._options.events))
        self._done = True
        return False

    def stop(self, deadline_s: float) -> None:
        """Nothing to close."""

    def figures(self) -> Figures:
        return {"done": self._done}


class ApiSource:
    """Event-driven: events that the program itself puts, by `Flow.put`."""

    def start(self, put: Put) -> None:
        """Nothing to open."""

    def stop(self, deadline_s: float) -> None:
        """Nothing to close."""

    def figures(self) -> Figures:
        return {}


API = Component("api", NoOptions, lambda _, __: ApiSource(), outside={})
LIST = Component("list", ListOptions, lambda options, _: ListSource(options), outside={})
SEQUENCE = Component("sequence", SequenceOptions, lambda options, _: SequenceSource(options), outside={})
