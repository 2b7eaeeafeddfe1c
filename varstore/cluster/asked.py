"""What is asked of one shard, and what became of it."""

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
    """What one shard is asked: a method, its arguments, and what is made of the reply. `wire` is told for how many
    seconds somebody waits."""

    method: str
    wire: Callable[[float], tuple[bytes, ...]]
    read: Callable[[Any], Any]


Question = Callable[[int], Ask]
"""What to ask for these virtual shards (mask)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one shard answered for the virtual shards that it was asked for."""

    place: Place
    vshards: int
    answer: Any


@dataclass(slots=True)
class Running:
    """A question on its way over a connection."""

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
    """Sent, and awaited by the thread of the question itself."""
    future: Future[Any] | None = None
    """In a thread of the pool."""
    answer: Any = None
    soft: bool = False
    """The answer says itself that it is not whole."""
    failure: str = ""
    instead: list[Part] | None = None
    desperate: bool = False
    """Whether those that lag or refill were asked too."""

    def all(self) -> Iterator[Part]:
        """This and all below."""
        yield self
        for part in self.instead or ():
            yield from part.all()

    def is_whole(self) -> bool:
        """Whether its virtual shards are answered for."""
        if self.answer is not None and not self.soft:
            return True
        return union(part.choice.vshards for part in self.instead or () if part.is_whole()) == self.choice.vshards

    def asked_instead(self) -> int:
        """Mask of what others are asked for instead."""
        return union(part.choice.vshards for part in self.instead or ())

    def is_settled(self) -> bool:
        """Whether nothing better can come."""
        if self.is_whole():
            return True
        return not self.is_asked and all(part.is_settled() for part in self.instead or ())

    @property
    def is_asked(self) -> bool:
        """Whether its own answer is awaited."""
        return self.future is not None or self.running is not None

    def outcomes(self) -> list[Outcome]:
        """The best that came: none of its virtual shards twice."""
        below = [outcome for part in self.instead or () for outcome in part.outcomes()]
        if self.answer is None or (self.soft and self.is_whole()):
            return below
        return [Outcome(self.choice.place, self.choice.vshards, self.answer)]
