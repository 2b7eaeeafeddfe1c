"""Where siblings meet: `sources` hand batches to a `Sink` that `pipeline` implements; neither knows the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from artimon.model.batch import Polled

Since = Callable[[str], int]
"""Of a source, by its name: the time of the newest poll that it remembers itself (epoch ms), 0 if it remembers none."""


class SinkRefused(RuntimeError):
    """The sink keeps nothing of what it was given (quota, closed). The text says why."""


class Sink(Protocol):
    """Takes what sources poll."""

    async def accept(self, polled: Sequence[Polled]) -> None:
        """Return once everything is durable in the log (fsynced); raise SinkRefused if nothing of it was kept."""
        ...

    def replay(self, since: Since | None = None) -> Iterable[Polled]:
        """What the log still holds at start, oldest first: a source brings its last values up to date from it. Samples
        of polls before `since` may be left out; it is asked as the replay goes on."""
        ...
