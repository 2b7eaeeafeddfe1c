"""Where siblings meet: `sources` hand batches to a `Sink` that `pipeline` implements; neither knows the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from artimon.model.batch import Polled


class SinkRefused(RuntimeError):
    """The sink keeps nothing of what it was given (quota, closed). The text says why."""


class Sink(Protocol):
    """Takes what sources poll."""

    async def accept(self, polled: Sequence[Polled]) -> None:
        """Return once everything is durable in the log (fsynced); raise SinkRefused if nothing of it was kept."""
        ...

    def replay(self) -> Iterable[Polled]:
        """What the log still holds at start, oldest first: a source brings its last values up to date from it."""
        ...
