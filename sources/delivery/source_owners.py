"""Owners of sources. Two live processes of equal context, host and instance are never merged."""

from __future__ import annotations

from typing import Protocol


class Owner(Protocol):
    """A process that may speak for a source."""

    async def answers(self, sure: bool) -> bool:
        """Whether it is alive: asked now if `sure`, else as of its last poll if that was answered."""
        ...

    def supersede(self) -> None:
        """Another process speaks for its source from now on."""
        ...


class Owners:
    """Source name -> the process that speaks for it. Event loop only."""

    def __init__(self) -> None:
        self._by_source: dict[str, Owner] = {}

    def get(self, source: str) -> Owner | None:
        return self._by_source.get(source)

    def hold(self, source: str, owner: Owner) -> None:
        """At start: the process that spoke for the source before."""
        self._by_source[source] = owner

    async def claim(self, source: str, rival: Owner, sure: bool) -> bool:
        """Whether `rival` speaks for the source now: it does unless another one does that is alive."""
        while (owner := self._by_source.get(source)) not in (None, rival):
            if owner is not None and await owner.answers(sure):
                return False
            if owner is not None and self._by_source.get(source) is owner:
                owner.supersede()
                del self._by_source[source]
        self._by_source[source] = rival
        return True

    def release(self, source: str, owner: Owner) -> None:
        """It no longer speaks for the source."""
        if self._by_source.get(source) is owner:
            del self._by_source[source]
