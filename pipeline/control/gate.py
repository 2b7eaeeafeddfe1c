"""Sink that a drain closes: it then refuses and counts all input, and the sources keep counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from artimon.model.batch import Polled
from artimon.model.protocols import Since, Sink, SinkRefused


class Gate:
    """`Sink` in front of another one."""

    def __init__(self, behind: Sink) -> None:
        self._behind = behind
        self.closed = ""
        """Reason for refusing everything, "" while open."""
        self.refused: Counter[str] = Counter()

    async def accept(self, polled: Sequence[Polled]) -> None:
        """Pass on to the sink behind; raises SinkRefused while closed."""
        if self.closed:
            self.refused[self.closed] += 1
            raise SinkRefused(f"{self.closed}: the agent takes nothing until `artimon agents resume`")
        await self._behind.accept(polled)

    def replay(self, since: Since | None = None) -> Iterable[Polled]:
        return self._behind.replay(since)
