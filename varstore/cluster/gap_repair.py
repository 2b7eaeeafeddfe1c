"""Repair of virtual shards that lack messages which Kafka deleted before they had read them: they are dropped, so that
the rebalancer takes them over whole, from a replica or the raw table. docs/varstore.md, "What Kafka deleted unread"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from artimon.model.vshards import ALL_VSHARDS, mask_of, union, vshards_of
from artimon.rawtable.schema import TableError
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.membership import Membership
from varstore.cluster.rebalance import VSHARDS_PER_STEP
from varstore.shard.shard import Shard
from varstore.store.feed_groups import LostRange, Partition

log = logging.getLogger(__name__)

REPAIR_DELAY_S = 5.0
"""Seconds from a loss to its repair: other shards with the same loss have registered it by then."""
TABLE_CHECK_S = 5.0
"""Interval between two checks of the raw table."""
MAX_TURN_WAIT_S = 3_600.0
"""Maximum wait for a replica that is to be refilled first."""
REPORT_S = 24 * 3_600.0
"""Time for which samples lost for all shards are reported as a problem."""
PAUSE_S, LONGEST_PAUSE_S = 60.0, 3_600.0
"""Pause between two refills from the table: doubles each time, until there was no refill for two hours."""

REFILL_PENDING = "it is refilled soon"

LostByGroup = Sequence[tuple[int, Mapping[Partition, LostRange]]]
TableHas = Callable[[Mapping[Partition, LostRange]], bool]
"""Returns True if the raw table may have the samples; False: lost for all. Raises TableError, OSError if unknown."""


def from_replicas(shards: ClusterState, me: str, lacking: int) -> int:
    """Return the mask of lacking virtual shards that another live shard holds whole."""
    return lacking & union(place.healthy_vshards for place in shards.live if place.id != me)


def refillable(shards: ClusterState, me: str, lacking: int) -> int:
    """Return the mask of virtual shards to refill here now: none of their owners is being refilled, and no live owner
    precedes this one. So one replica answers meanwhile, and takes a copy later."""
    others = {place.id: place for place in shards.live if place.id != me}
    return mask_of(v for v in vshards_of(lacking) if not _must_wait(shards.membership.owners(v), others, me, v))


def _must_wait(owners: Sequence[str], others: Mapping[str, ShardAddress], me: str, vshard: int) -> bool:
    for id_ in owners[: owners.index(me)] if me in owners else owners:
        if id_ in others:
            return True
    return any((others[id_].held_vshards & ~others[id_].ready_vshards) >> vshard & 1 for id_ in owners if id_ in others)


def ranges_text(lost: LostByGroup) -> str:
    """Return the lost ranges as text for operators."""
    ranges = sorted({(key.partition, one.start, one.until) for _, of_group in lost for key, one in of_group.items()})
    return ", ".join(f"offsets {start} to {until} of partition {p}" for p, start, until in ranges)


class GapRepair:
    """Used by the rebalancer's thread, which calls `step` between steps of the rebalancer.

    Invariant: a virtual shard is dropped only if it can be restored whole: another shard holds it whole, or the raw
    table has read beyond the lost range. Otherwise its answers are partial, with a note on the lost range."""

    def __init__(self, me: str, shard: Shard, has_lost: TableHas) -> None:
        self._me, self._shard, self._has = me, shard, has_lost
        self._since_s: float | None = None
        self._not_before_s = 0.0
        self._pause_s, self._refilled_s = PAUSE_S, -2 * LONGEST_PAUSE_S
        self._refills = 0
        self._remedy = ""
        """Present remedy for the loss; empty if nothing is lacking."""
        self._unrecoverable = ""
        """Ranges recently found to be lost for all shards."""
        self._now_s = self._unrecoverable_s = 0.0

    def describe_loss(self, vshards: int) -> str:
        """Return a text of what these virtual shards lack and of the remedy; empty if nothing is lacking."""
        lost = [one for one in self._shard.lost() if one[0] & vshards]
        return (
            f"lacks {ranges_text(lost)}, which Kafka deleted before it was read: {self._remedy or REFILL_PENDING}"
            if lost
            else ""
        )

    @property
    def problems(self) -> list[str]:
        """Problems for health."""
        gone = (
            f"{self._unrecoverable} are lost: neither Kafka nor the raw table has them" if self._unrecoverable else ""
        )
        return [text for text in (self.describe_loss(ALL_VSHARDS), gone) if text]

    def figures(self) -> dict[str, int]:
        """Return the figures that `artimon status` shows: offsets lacking in the worst group, and refills from the raw
        table since the start."""
        lost = [sum(one.until - one.start for one in of_group.values()) for _, of_group in self._shard.lost()]
        return {"offsets_lacking": max(lost, default=0), "refills": self._refills}

    def step(self, membership: Membership, shards: ClusterState | None, now_s: float) -> bool:
        """Do one step; return True if virtual shards were dropped for the rebalancer to take over. `shards`: see
        Rebalancer."""
        self._now_s, wanted = now_s, membership.owned_by(self._me)
        if now_s > self._unrecoverable_s + REPORT_S:
            self._unrecoverable = ""
        lost = [(mask & wanted, of_group) for mask, of_group in self._shard.lost() if mask & wanted]
        if not lost:
            self._since_s, self._remedy = None, ""
            return False
        if self._since_s is None:
            self._since_s, self._remedy = now_s, REFILL_PENDING
            log.error("shard %s lacks %s, which Kafka deleted before it was read", self._me, ranges_text(lost))
        if shards is None or now_s < self._since_s + REPAIR_DELAY_S:
            return False
        return self._drop_for_copy(shards, lost) or self._refill(shards, lost, now_s)

    def _drop_for_copy(self, shards: ClusterState, lost: LostByGroup) -> bool:
        """Drop a part of what other shards hold whole: the rest answers meanwhile."""
        found = from_replicas(shards, self._me, union(mask for mask, _ in lost))
        if not found:
            return False
        self._remedy = "it is copied from a replica"
        self._shard.drop(mask_of(vshards_of(found)[:VSHARDS_PER_STEP]))
        return True

    def _refill(self, shards: ClusterState, lost: LostByGroup, now_s: float) -> bool:
        if now_s < self._not_before_s:
            return False
        self._not_before_s = now_s + TABLE_CHECK_S
        late = self._since_s is not None and now_s > self._since_s + MAX_TURN_WAIT_S
        ripe = 0
        for mask, of_group in lost:
            mine = mask if late else refillable(shards, self._me, mask)
            if not mine:
                self._remedy = "a replica is refilled first"
            elif self._table_has(of_group):
                ripe |= mine
        if ripe:
            self._begin_refill(ripe, lost, now_s)
        return bool(ripe)

    def _table_has(self, lost: Mapping[Partition, LostRange]) -> bool:
        """Return True if the table has the lost ranges. Raw data that even the table lacks is reported and given up."""
        try:
            there = self._has(lost)
        except (TableError, OSError) as error:
            self._remedy = f"it cannot be refilled yet: {error}"
            return False
        if not there:
            text = ranges_text([(0, lost)])
            log.warning("shard %s: %s are lost: the raw table does not have them either", self._me, text)
            if any(one.start for one in lost.values()):  # otherwise it began above them
                self._unrecoverable, self._unrecoverable_s = text, self._now_s
            self._shard.clear_lost(lost)
        return there

    def _begin_refill(self, vshards: int, lost: LostByGroup, now_s: float) -> None:
        again = now_s - self._refilled_s < 2 * LONGEST_PAUSE_S
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if again else PAUSE_S
        self._refilled_s, self._not_before_s = now_s, now_s + self._pause_s
        self._refills += 1
        self._remedy = REFILL_PENDING  # for ranges lost meanwhile
        log.info("shard %s: refilling %d virtual shards, for %s", self._me, vshards.bit_count(), ranges_text(lost))
        self._shard.drop(vshards)
