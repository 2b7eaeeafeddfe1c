"""Assignment of every batch of an agent's log to the one site that may have it. Pure: no I/O, no clock, no threads.

Each site has its own tracker. A batch in a call that may have reached a site stays with that site until it is acked
there, or an operator releases the lane; other batches may move. So, but for released lanes, no batch is at two sites
after any crash: the possible receivers of a batch are on the disk before it is sent (record.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from artimon.model.ack_state import Position
from artimon.model.batch import NO_LANE, BatchHeader, BatchId
from artimon.model.ranges import LaneId
from pipeline.delivery.tracker import LaneCall, Tracker
from pipeline.link.answers import MessageAnswer
from pipeline.sites.site_binding import LaneMove, SiteAssignment
from pipeline.sites.site_record import RESERVED_AHEAD, LaneRecord, SiteRecord
from pipeline.wal.state_records import LogPosition

REFUSAL_PREFIXES = ("full:", "buffer full:", "damaged:", "store:")
"""Reasons of refusals after which the site certainly does not have the batches."""


@dataclass(slots=True)
class SiteRouter:
    """`trackers`: one a site, in order of preference. Announcements go to the first; their copies for other sites are
    in `names`. Not thread-safe."""

    binding: SiteAssignment
    trackers: dict[str, Tracker]
    record: SiteRecord = field(default_factory=SiteRecord)
    bound_until: dict[LaneId, int] = field(default_factory=dict)
    """Greatest sequence of a lane's last span that may be at its site; those above it may move."""
    last_logged: dict[LaneId, int] = field(default_factory=dict)
    """Greatest sequence that was logged."""
    moved: int = 0
    released: int = 0
    _unmoved: dict[LaneId, tuple[str, BatchId, float]] = field(default_factory=dict)
    _ends: dict[LaneId, dict[int, int]] = field(default_factory=dict)
    """By first sequence of a span: the newest segment of the log that may hold a batch of the spans before it."""

    @property
    def home(self) -> str:
        return self.binding.order[0]

    def add_logged(self, placed: Iterable[tuple[BatchHeader, LogPosition]], now_ms: int) -> Counter[str]:
        """Add logged batches to the trackers of their sites. Returns the bytes added by site."""
        got: Counter[str] = Counter()
        for header, place in placed:
            site = self.home if header.id.lane == NO_LANE else self._site_of(header.id.lane_id)
            self.trackers[site].add(header, place, now_ms)
            got[site] += place.length
            if header.id.lane != NO_LANE:
                lane = header.id.lane_id
                self.last_logged[lane] = max(self.last_logged.get(lane, -1), header.id.sequence)
        return got

    def restore(self, found: Iterable[tuple[BatchHeader, LogPosition, Position | None, int]]) -> None:
        """Restore the content of a log after a restart, in its order: header, place, known position or None, and time
        of logging. Batches that may be at a site stay there; others go to the present site of their lane."""
        for header, place, position, logged_ms in found:
            if header.id.lane == NO_LANE:
                self.trackers[self.home].add(header, place, logged_ms)
                continue
            known = self._record_of(header.id.lane_id)
            free = known.is_unassigned(header.id.sequence) and position is None
            site = known.spans[-1][1] if free else known.site_of(header.id.sequence)
            tracker = self.trackers.get(site or self.home, self.trackers[self.home])
            if position is None:
                tracker.add(header, place, logged_ms)
            else:
                tracker.restore_sent(header, place, position, logged_ms)
            lane = header.id.lane_id
            self.last_logged[lane] = max(self.last_logged.get(lane, -1), header.id.sequence)
        if self.record.is_new:  # log from before sites were used: the first one may have all of it
            for lane, seen in self.last_logged.items():
                self.record.lanes[lane].unsent_from = seen + 1
        for lane, known in self.record.lanes.items():
            # sequences that the log does not hold are acked, or not yet given to any batch
            self.bound_until[lane] = max(
                min(known.unsent_from - 1, self.last_logged.get(lane, -1)), known.spans[-1][0] - 1
            )
            site = known.spans[-1][1]
            self.binding.lanes[lane] = site if site in self.trackers else self.home

    def bind(self, site: str, group: LaneCall) -> bool:
        """Note that a group is about to be handed to a call. True if the record must be on the disk before that."""
        if group.lane.lane == NO_LANE:
            return False
        known, last = self._record_of(group.lane), max(item.id.sequence for item in group.items)
        if self.binding.site_of(group.lane) != site or last <= self.bound_until.get(group.lane, -1):
            return False  # it may have been there before
        self.bound_until[group.lane] = last
        if last >= known.unsent_from:
            known.unsent_from = last + 1 + max(RESERVED_AHEAD, 4 * len(group.items))
            self.record.version += 1
        return self.record.version > self.record.saved  # also covers changes that an earlier call failed to save

    def unbind(self, site: str, group: LaneCall, top: int) -> None:
        """Undo `expose` after a call that left nothing at the site: its batches may move. `top`: the one before it."""
        if self.binding.lanes.get(group.lane) == site:
            self.bound_until[group.lane] = top

    def end_call(
        self, site: str, group: LaneCall, top: int, answers: Sequence[MessageAnswer] | None, reached: bool
    ) -> None:
        """Handle the end of a call; `answers`: None if none came. Not `reached`: nothing was sent. `top`: as above."""
        if answers is None:
            if not reached:
                self.unbind(site, group, top)
        elif any(answer.position is not None for answer in answers):
            self.mark_served(site, group.lane)
        elif all(answer.reason.startswith(REFUSAL_PREFIXES) for answer in answers):
            self.unbind(site, group, top)

    def mark_served(self, site: str, lane: LaneId) -> None:
        """Note that the site took batches of the lane."""
        if lane.lane != NO_LANE:
            self.binding.mark_served(site, lane)

    def move_due(self, now: float, reachable: Iterable[str], held: range) -> list[LaneMove]:
        """Make the moves that are due. `held`: segments of the log that a later start may find."""
        moves = self.binding.due_moves(now, self._stuck_seconds(now), reachable)
        for move in moves:
            self._move(move)
        self._prune(held)
        return moves

    def release(self, number: int, reachable: Iterable[str]) -> list[LaneMove]:
        """Release the lanes of this number on an operator's command: unacked batches at sites that are unreachable now
        move elsewhere, although such a site may still store them."""
        up = set(reachable)
        moves = []
        for lane in [lane for lane in self.binding.lanes if lane.lane == number]:
            for site, tracker in self.trackers.items():
                here = self.binding.lanes[lane]
                to = here if here in up else next((name for name in self.binding.order if name in up), None)
                if site in up or to is None or not tracker.outstanding(lane):
                    continue
                self.released += tracker.requeue_sent(lane)
                moves.append(LaneMove(lane, site, to))
                if here == to:
                    self._rebind(moves[-1])
                else:
                    self.bound_until[lane], self.binding.lanes[lane] = -1, to
                    self._move(moves[-1])
        return moves

    def bound_counts(self) -> dict[str, dict[str, int]]:
        """Return by site and lane the number of batches that only that site may have and that it did not ack."""
        found: dict[str, dict[str, int]] = {}
        for site, tracker in self.trackers.items():
            for lane, count in tracker.count_bound(lambda lane, site=site: self._bound_until_at(site, lane)).items():  # type: ignore[misc]
                found.setdefault(site, {})[str(lane)] = count
        return found

    def _site_of(self, lane: LaneId) -> str:
        self._record_of(lane)
        return self.binding.site_of(lane)

    def _record_of(self, lane: LaneId) -> LaneRecord:
        known = self.record.lanes.get(lane)
        if known is None:
            known = self.record.lanes[lane] = LaneRecord([(0, self.binding.site_of(lane))])
        return known

    def _bound_until_at(self, site: str, lane: LaneId) -> int:
        """Return `top` at the present site of the lane: batches above it may move; elsewhere all of them are bound."""
        here = self.binding.lanes.get(lane) == site
        return self.bound_until.get(lane, -1) if here else 2**63

    def _stuck_seconds(self, now: float) -> dict[LaneId, float]:
        """Return by lane for how many seconds its oldest unsent batch has been the same."""
        waits = {}
        for lane, site in self.binding.lanes.items():
            oldest = self.trackers[site].first_above(lane, self._bound_until_at(site, lane))
            if oldest is None:
                self._unmoved.pop(lane, None)
                continue
            at, id, since = self._unmoved.get(lane, (site, oldest, now))
            if (at, id) != (site, oldest):
                since = now
            self._unmoved[lane] = (site, oldest, since)
            waits[lane] = now - since
        return waits

    def _rebind(self, move: LaneMove) -> None:
        """Move all waiting batches of a lane from one site to the lane's present site, where they are bound at once."""
        items = self.trackers[move.site].reclaim(move.lane, -1)
        self.trackers[move.to].adopt(move.lane, items)
        known, first = self._record_of(move.lane), min(item.id.sequence for item in items)
        known.spans = [*((start, site) for start, site in known.spans if start < first), (first, move.to)]
        known.unsent_from = max(known.unsent_from, self.bound_until.get(move.lane, -1) + 1)
        self.record.version += 1

    def _move(self, move: LaneMove) -> None:
        lane = move.lane
        top = self.bound_until.get(lane, -1)
        items = self.trackers[move.site].reclaim(lane, top)
        self.trackers[move.to].adopt(lane, items)
        first = min((item.id.sequence for item in items), default=max(top, self.last_logged.get(lane, -1)) + 1)
        self._record_of(lane).move(first, move.to)
        self.bound_until[lane] = first - 1
        self.record.version += 1
        self.moved += len(items)
        self._unmoved.pop(lane, None)

    def _prune(self, held: range) -> None:
        """Drop the spans of which the log holds no batch. A span whose batches are all acked must stay: a crash may
        lose the ACKED records, and then only the span says at which site its batches are."""
        for lane, known in self.record.lanes.items():
            ends = self._ends.pop(lane, {})
            if len(known.spans) > 1:
                ends = self._ends[lane] = {first: ends.get(first, held.stop - 1) for first, _ in known.spans[1:]}
                known.prune(max((first for first, segment in ends.items() if segment < held.start), default=0))
