"""Site of each lane for batches that were never sent. Pure: no I/O, no clock, no threads.

Sites have an order of preference. A lane leaves its site when none of its batches has made progress for `patience_s`.
It returns to a preferred site that has been reachable for `return_s`: first one lane, the others once that lane was
served. Each time a lane has to leave the same site again, it stays away twice as long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.ranges import LaneId
from pipeline.link.timer import backoff_s

MAX_AWAY_S = 3600.0


class LaneMove(NamedTuple):
    """The unsent batches of a lane go to another site."""

    lane: LaneId
    site: str
    to: str


@dataclass(slots=True)
class _SiteState:
    """`trusted`: it has served a lane since one had to leave it. `probe_lane`: the lane that tries it meanwhile."""

    trusted: bool = True
    reachable_since: float | None = None
    probe_lane: LaneId | None = None


@dataclass(slots=True)
class _SiteBackOff:
    """Back-off of a lane from a site that it left."""

    failures: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class SiteAssignment:
    """Times are seconds of a monotonic clock. Invariant: every lane is at exactly one site."""

    order: Sequence[str]
    patience_s: float = 60.0
    return_s: float = 60.0
    lanes: dict[LaneId, str] = field(default_factory=dict)
    _sites: dict[str, _SiteState] = field(default_factory=dict)
    _back_offs: dict[tuple[str, LaneId], _SiteBackOff] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.order or len(set(self.order)) != len(self.order):
            raise ValueError(f"sites {list(self.order)}: name each once, the preferred one first")
        self._sites = {name: _SiteState() for name in self.order}

    def site_of(self, lane: LaneId) -> str:
        """Return the site of a lane; a new lane begins at the most preferred trusted site."""
        site = self.lanes.get(lane)
        if site is None:
            trusted = (name for name in self.order if self._sites[name].trusted)
            site = self.lanes[lane] = next(trusted, self.order[0])
        return site

    def mark_served(self, site: str, lane: LaneId) -> None:
        """Note that the site took batches of this lane."""
        self._sites[site].trusted, self._sites[site].probe_lane = True, None
        self._back_offs.pop((site, lane), None)

    def due_moves(self, now: float, stuck: Mapping[LaneId, float], reachable: Iterable[str]) -> list[LaneMove]:
        """Return the moves that are due. `stuck`: seconds for which no unsent batch of a lane has moved."""
        up = set(reachable)
        for name, site in self._sites.items():
            if name not in up:
                site.reachable_since = None
            elif site.reachable_since is None:
                site.reachable_since = now
        moves = []
        for lane in sorted(self.lanes):
            to = self._target(lane, now, stuck.get(lane, 0.0), up)
            if to is not None:
                moves.append(LaneMove(lane, self.lanes[lane], to))
                self.lanes[lane] = to
        return moves

    def _target(self, lane: LaneId, now: float, stuck_s: float, up: set[str]) -> str | None:
        here = self.lanes[lane]
        if stuck_s >= self.patience_s:
            others = (name for name in self.order if name != here and name in up)
            to = next((name for name in others if self._is_due(name, lane, now)), None)
            if to is not None:
                self._leave(here, lane, now)
                self._assign(to, lane)
                return to
            return None
        for name in self.order[: self.order.index(here)]:
            since = self._sites[name].reachable_since
            if since is not None and now - since >= self.return_s and self._is_due(name, lane, now):
                self._assign(name, lane)
                return name
        return None

    def _is_due(self, name: str, lane: LaneId, now: float) -> bool:
        site, away = self._sites[name], self._back_offs.get((name, lane))
        if away is not None and now < away.not_before:
            return False
        return site.trusted or site.probe_lane in (None, lane)

    def _assign(self, name: str, lane: LaneId) -> None:
        if not self._sites[name].trusted:
            self._sites[name].probe_lane = lane

    def _leave(self, name: str, lane: LaneId, now: float) -> None:
        site, away = self._sites[name], self._back_offs.setdefault((name, lane), _SiteBackOff())
        site.trusted, site.probe_lane = False, None
        away.failures += 1
        away.not_before = now + backoff_s(away.failures, self.return_s, max(self.return_s, MAX_AWAY_S))
