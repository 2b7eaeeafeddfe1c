"""Base of discoveries: each runs as a task and keeps the groups that it found last."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sources.base.source_errors import PollError
from sources.scrape.discovery.target_group import DiscoveredGroup

log = logging.getLogger(__name__)
MAX_BODY = 16 << 20
"""Size limit of one answer in bytes."""
MAX_FOUND = 50_000
"""Limit of the targets and of the objects of one discovery."""
RETRY_S = 15.0
"""Maximum seconds until a failed request is repeated."""
FAILURES = (PollError, OSError, ValueError, TimeoutError, AttributeError, LookupError, TypeError)
"""Errors of a server, or of the form of its answers: the last groups stay in use."""
Groups = Mapping[str, DiscoveredGroup]


class Discovery(ABC):
    """Finds groups of targets, by source. Event loop only.

    An error goes to `problem`, and the groups stay. `ready`: it has found its targets once, which may be none."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._groups: dict[str, DiscoveredGroup] = {}
        self.problem, self.ready = "", False

    @abstractmethod
    async def run(self) -> None:
        """Discover until cancelled."""

    def groups(self) -> Groups:
        """Return the present groups. A group that did not change is the same object."""
        return self._groups

    def publish(self, groups: Groups) -> None:
        """Replace all groups. Raises ValueError if there are too many targets."""
        found = sum(len(group.targets) for group in groups.values())
        if found > MAX_FOUND:
            raise ValueError(f"{found:,} targets: at most {MAX_FOUND:,} are taken, select fewer")
        known = self._groups
        kept = {source: known[source] if known.get(source) == one else one for source, one in groups.items()}
        is_new = not self.ready or kept != known
        self._groups, self.problem, self.ready = kept, "", True
        if is_new:
            self._changed()

    def fail(self, error: Exception) -> None:
        """Report an error; the groups stay."""
        self.problem = "no answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
        log.warning("%s: %s", self, self.problem)


class RefreshedDiscovery(Discovery):
    """Discovery that reads all its groups once a period."""

    refresh_s: float

    @abstractmethod
    async def refresh(self) -> Groups:
        """Return all groups. Raises FAILURES."""

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(max(1.0, self.refresh_s)):
                    self.publish(await self.refresh())
            except FAILURES as error:
                self.fail(error)
            await asyncio.sleep(self.refresh_s)


@dataclass(frozen=True, slots=True)
class DiscoveryConfig(ABC):
    """Settings of one discovery. Equal settings share nothing but are the same discovery after a reload."""

    @abstractmethod
    def make(self, changed: Callable[[], None]) -> Discovery:
        """Return a discovery that calls `changed` after each change."""


def parsed_json(body: bytes) -> Any:
    """Parse an answer. Raises ValueError."""
    import orjson  # imported only where there is a discovery

    return orjson.loads(body)
