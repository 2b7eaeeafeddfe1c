"""What polls, and hands over to an agent."""

from __future__ import annotations

from typing import Protocol

from artimon.model.batch import SeriesBlock
from tests.simulation.agents import SimAgent
from tests.simulation.payload import TOO_LARGE, polled
from tests.simulation.scheduler import Scheduler

OLD_MS = 92 * 86_400_000
"""Polled so long ago a batch is refused by every store."""
TOLD_S = 6.0
"""So long a source waits to be told."""


class Polls(Protocol):
    """What a source needs of its world."""

    scheduler: Scheduler

    def new_token(self) -> int:
        """Of a poll."""
        ...

    def announcement(self, source: str) -> tuple[SeriesBlock, ...]:
        """What a source has to say of its series."""
        ...


class Source:
    """Polls, and hands over; what was not accepted for sure is polled anew."""

    def __init__(self, world: Polls, agent: SimAgent, name: str) -> None:
        self._world, self._agent, self._name = world, agent, name
        self.left = 0
        """Polls that were not accepted yet."""

    def poll(self, old: bool = False) -> None:
        """One poll."""
        world, agent = self._world, self._agent
        told: list[bool] = []

        def hear(good: bool) -> None:
            told.append(good)
            if good and not too_large:  # of those nothing is kept
                self.left -= 1
            else:
                world.scheduler.later(1.0 + world.scheduler.random.random() * 2, self.poll)

        def wait_no_longer() -> None:
            if not told:
                told.append(False)
                self.poll()

        def hear_once(good: bool) -> None:
            if not told:
                hear(good)
            elif good and not told[0]:  # too late: it was polled again, which does no harm
                told[0] = True

        too_large = world.scheduler.chance(0.01)
        if agent.up:
            poll_ms = world.scheduler.now_ms - (OLD_MS if old else 0)
            blocks = world.announcement(self._name)
            token = world.new_token() | (TOO_LARGE if too_large else 0)
            world.scheduler.later(TOLD_S, wait_no_longer)
            agent.offer([polled(self._name, token, poll_ms, blocks)], hear_once)
        else:
            world.scheduler.later(1.0, self.poll)
