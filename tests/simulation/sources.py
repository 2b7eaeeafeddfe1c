"""Sources that poll and pass the results to an agent."""

from __future__ import annotations

from typing import Protocol

from artimon.model.batch import SeriesBlock
from tests.simulation.agents import SimAgent
from tests.simulation.payload import TOO_LARGE, polled
from tests.simulation.scheduler import Scheduler

OLD_MS = 92 * 86_400_000
"""Age of a poll that every store refuses."""
RESULT_TIMEOUT_S = 6.0
"""Timeout of a source for the result, in seconds."""


class Polls(Protocol):
    """Interface of the world to a source."""

    scheduler: Scheduler

    def new_token(self) -> int:
        """Return a token for a poll."""
        ...

    def announcement(self, source: str) -> tuple[SeriesBlock, ...]:
        """Return the announcements of a source."""
        ...


class Source:
    """Polls and offers the result to its agent; results that were not accepted are polled again."""

    def __init__(self, world: Polls, agent: SimAgent, name: str) -> None:
        self._world, self._agent, self._name = world, agent, name
        self.left = 0
        """Polls that were not accepted yet."""

    def poll(self, old: bool = False) -> None:
        """Make one poll."""
        world, agent = self._world, self._agent
        results: list[bool] = []

        def on_first_result(good: bool) -> None:
            results.append(good)
            if good and not too_large:  # nothing is kept of these
                self.left -= 1
            else:
                world.scheduler.later(1.0 + world.scheduler.random.random() * 2, self.poll)

        def on_timeout() -> None:
            if not results:
                results.append(False)
                self.poll()

        def on_result(good: bool) -> None:
            if not results:
                on_first_result(good)
            elif good and not results[0]:  # too late: it was polled again, which does no harm
                results[0] = True

        too_large = world.scheduler.chance(0.01)
        if agent.up:
            poll_ms = world.scheduler.now_ms - (OLD_MS if old else 0)
            blocks = world.announcement(self._name)
            token = world.new_token() | (TOO_LARGE if too_large else 0)
            world.scheduler.later(RESULT_TIMEOUT_S, on_timeout)
            agent.offer([polled(self._name, token, poll_ms, blocks)], on_result)
        else:
            world.scheduler.later(1.0, self.poll)
