"""Protocols between sibling packages: `sources` pass batches to a `Sink` that `pipeline` implements, without imports
of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from artimon.model.batch import PollResult

NewestPoll = Callable[[str], int]
"""Map the name of a source to the time of the newest poll in its own memory (epoch ms), 0 if there is none."""


class SinkRefusedError(RuntimeError):
    """The sink kept nothing of the call (quota, closed). The text gives the reason."""


class Sink(Protocol):
    """Receiver of polled batches."""

    async def accept(self, polled: Sequence[PollResult]) -> None:
        """Return once everything is durable in the log (fsynced). Raises SinkRefusedError if nothing was kept."""
        ...

    def replay(self, since: NewestPoll | None = None) -> Iterable[PollResult]:
        """Yield the content of the log at start, oldest first, for sources to restore their last values. May omit
        samples of polls before `since`, which is called during the replay."""
        ...
