"""Owners of sources. Two live processes of equal context, host and instance are never merged."""

from __future__ import annotations

from typing import Protocol


class SourceOwner(Protocol):
    """A process that may own a source."""

    async def answers(self, sure: bool) -> bool:
        """Return True if it is alive. `sure` forces a check now; else an answered last poll is enough."""
        ...

    def supersede(self) -> None:
        """Give up the source to another process."""
        ...


class FixedOwner:
    """Owner that never gives up its source: a drop-in file, or a configured target even if it does not answer."""

    async def answers(self, sure: bool) -> bool:  # noqa: ARG002
        return True

    def supersede(self) -> None:
        """Do nothing: never called, see `answers`."""


class SourceOwners:
    """Source name -> the process that owns it. Event loop only."""

    def __init__(self) -> None:
        self._by_source: dict[str, SourceOwner] = {}

    def get(self, source: str) -> SourceOwner | None:
        return self._by_source.get(source)

    def set_owner(self, source: str, owner: SourceOwner) -> None:
        """Register at start the process that owned the source before."""
        self._by_source[source] = owner

    async def claim(self, source: str, rival: SourceOwner, sure: bool) -> bool:
        """Make `rival` the owner unless another owner is alive. Return True if `rival` owns the source now."""
        while (owner := self._by_source.get(source)) not in (None, rival):
            if owner is not None and await owner.answers(sure):
                return False
            if owner is not None and self._by_source.get(source) is owner:
                owner.supersede()
                del self._by_source[source]
        self._by_source[source] = rival
        return True

    def release(self, source: str, owner: SourceOwner) -> None:
        """Remove `owner` as the owner of the source."""
        if self._by_source.get(source) is owner:
            del self._by_source[source]
