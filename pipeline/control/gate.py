"""The way in, which a drain closes: what sources bring then is refused and counted, and they keep counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from artimon.model.batch import Polled
from artimon.model.protocols import Since, Sink, SinkRefused


class Gate:
    """A `Sink` before another one."""

    def __init__(self, behind: Sink) -> None:
        self._behind = behind
        self.closed = ""
        """Why nothing is taken, "" while it is open."""
        self.refused: Counter[str] = Counter()

    async def accept(self, polled: Sequence[Polled]) -> None:
        """As of the sink behind; SinkRefused while closed."""
        if self.closed:
            self.refused[self.closed] += 1
            raise SinkRefused(f"{self.closed}: the agent takes nothing until `artimon agents resume`")
        await self._behind.accept(polled)

    def replay(self, since: Since | None = None) -> Iterable[Polled]:
        return self._behind.replay(since)
