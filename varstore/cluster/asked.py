"""Request to one shard and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from artimon.model.vshards import union
from bookkeeper.rpc.framed_server import FramedClient, Sent
from varstore.cluster.choosing import Choice
from varstore.cluster.directory import Place

Check = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Ask:
    """Request to one shard: a method, its arguments, and the decoder of the reply. `wire` gets the seconds until the
    deadline."""

    method: str
    wire: Callable[[float], tuple[bytes, ...]]
    read: Callable[[Any], Any]


Question = Callable[[int], Ask]
"""Returns the request for these virtual shards (mask)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Answer of one shard for the virtual shards that it was asked for."""

    place: Place
    vshards: int
    answer: Any


@dataclass(slots=True)
class Running:
    """A request in progress over a connection."""

    sent: Sent
    ask: Ask
    client: FramedClient
    began: float


@dataclass(slots=True)
class Part:
    """Virtual shards that one shard is asked for; `instead`: others that are asked for the same, because it failed or
    is slow."""

    choice: Choice
    since: float
    depth: int
    client: FramedClient | None = None
    running: Running | None = None
    """Sent, and awaited by the calling thread."""
    future: Future[Any] | None = None
    """Result, if a thread of the pool runs the request."""
    answer: Any = None
    soft: bool = False
    """True if the answer says that it is partial."""
    failure: str = ""
    instead: list[Part] | None = None
    desperate: bool = False
    """True if lagging or refilling shards were asked too."""

    def all(self) -> Iterator[Part]:
        """Yield this part and all below."""
        yield self
        for part in self.instead or ():
            yield from part.all()

    def is_whole(self) -> bool:
        """Return True if all its virtual shards have whole answers."""
        if self.answer is not None and not self.soft:
            return True
        return union(part.choice.vshards for part in self.instead or () if part.is_whole()) == self.choice.vshards

    def asked_instead(self) -> int:
        """Return the mask that others are asked for instead."""
        return union(part.choice.vshards for part in self.instead or ())

    def is_settled(self) -> bool:
        """Return True if no better answer can come."""
        if self.is_whole():
            return True
        return not self.is_asked and all(part.is_settled() for part in self.instead or ())

    @property
    def is_asked(self) -> bool:
        """True while its own answer is awaited."""
        return self.future is not None or self.running is not None

    def outcomes(self) -> list[Outcome]:
        """Return the best answers so far; they do not overlap."""
        below = [outcome for part in self.instead or () for outcome in part.outcomes()]
        if self.answer is None or (self.soft and self.is_whole()):
            return below
        return [Outcome(self.choice.place, self.choice.vshards, self.answer)]
