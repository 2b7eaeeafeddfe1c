"""Calls between agents and collectors: requests and answers that are lost, late, repeated or damaged on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import CollectorEndpoint
from tests.simulation.scheduler import Scheduler

Reply = Callable[[list[MessageAnswer]], None]
Broken = Callable[[], None]


@dataclass(slots=True)
class Conditions:
    """Probabilities for each message."""

    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    damaged: float = 0.0
    slow_s: float = 0.01


class Server:
    """Listener at an endpoint: a collector."""

    def receive(self, messages: Sequence[bytes], reply: Reply) -> None:
        """Receive a call; `reply` is called once it is answered, never if the process dies."""
        raise NotImplementedError


class Network:
    """The whole network. `kept`: requests that a machine in between still has, to be delivered a day late."""

    def __init__(self, scheduler: Scheduler, conditions: Conditions) -> None:
        self._scheduler, self.conditions = scheduler, conditions
        self.servers: dict[CollectorEndpoint, Server] = {}
        self.partitioned: set[tuple[str, CollectorEndpoint]] = set()
        """Pairs of sender and endpoint that do not reach each other."""
        self.refused: set[tuple[str, CollectorEndpoint]] = set()
        """Pairs of sender and endpoint whose connections are refused."""
        self.kept: list[list[bytes]] = []
        self.calls = 0

    def call(self, sender: str, to: CollectorEndpoint, messages: list[bytes], reply: Reply, broken: Broken) -> None:
        """Make one call. `broken` is called if no server listens there."""
        self.calls += 1
        chance, conditions = self._scheduler.random, self.conditions
        if to not in self.servers or (sender, to) in self.refused:
            self._scheduler.later(0.01, broken)
            return
        if (sender, to) in self.partitioned or chance.random() < conditions.lost:
            return
        if conditions.damaged and chance.random() < conditions.damaged:
            messages = self._damage(messages)
        if chance.random() < conditions.repeated:
            again = self._delay() + chance.random() * 30
            self._scheduler.later(again, lambda: self._deliver(sender, to, messages, None))
            if len(self.kept) < 6:
                self.kept.append(messages)
        self._scheduler.later(self._delay(), lambda: self._deliver(sender, to, messages, reply))

    def deliver_late(self, messages: list[bytes]) -> None:
        """Deliver messages to the first server that listens now."""
        for to in list(self.servers)[:1]:
            self._deliver("", to, messages, None)

    def _deliver(self, sender: str, to: CollectorEndpoint, messages: list[bytes], reply: Reply | None) -> None:
        server = self.servers.get(to)
        if server is None or (sender, to) in self.partitioned:
            return

        def back(answers: list[MessageAnswer]) -> None:
            if reply is None or self._scheduler.random.random() < self.conditions.lost:
                return
            self._scheduler.later(self._delay(), lambda: reply(answers))

        server.receive(messages, back)

    def _delay(self) -> float:
        chance, conditions = self._scheduler.random, self.conditions
        if conditions.late and chance.random() < conditions.late:
            return chance.random() * 40
        return conditions.slow_s * (0.2 + chance.random())

    def _damage(self, messages: list[bytes]) -> list[bytes]:
        chance = self._scheduler.random
        at = chance.randrange(len(messages))
        data = bytearray(messages[at])
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return [*messages[:at], bytes(data), *messages[at + 1 :]]
