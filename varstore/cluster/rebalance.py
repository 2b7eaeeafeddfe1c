"""Moves a shard towards the membership: takes over wanted virtual shards, and drops those that their owners hold whole
by now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from artimon.model.vshards import mask_of, vshards_of
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.membership import Membership
from varstore.shard.shard import Shard

log = logging.getLogger(__name__)

VSHARDS_PER_STEP = 64
"""Virtual shards taken over in one step: bounds the cost of a failure."""
GRACE_S = 5.0
"""Seconds from the removal of virtual shards from the registration to their drop: clients know it by then."""


RestoreFrom = Callable[[int, ShardAddress | None], None]
"""Takes over these virtual shards (mask) from a live holder or, if None, from snapshots, the raw table, or empty.
Raises if that fails; then nothing was taken over."""


def lacking(membership: Membership, me: str, held: int) -> int:
    """Return the mask of virtual shards that are wanted and not held."""
    return membership.owned_by(me) & ~held


def plan_donors(shards: ClusterState, me: str, wanted: int) -> list[tuple[ShardAddress | None, int]]:
    """Return the donor of each wanted virtual shard, at most AT_ONCE in each step; None: no live shard has them."""
    found: dict[ShardAddress | None, list[int]] = {}
    others = [place for place in shards.live if place.id != me]
    for vshard in vshards_of(wanted):
        having = [place for place in others if place.healthy_vshards >> vshard & 1]
        giver = having[vshard % len(having)] if having else None  # replicas share the work
        found.setdefault(giver, []).append(vshard)
    if None in found:  # no copies between shards: all at once
        found[None] = found.pop(None)
    return [
        (giver, mask_of(some))
        for giver, vshards in found.items()
        for some in (_batches(vshards) if giver is not None else [vshards])
    ]


def _batches(vshards: Sequence[int]) -> list[Sequence[int]]:
    return [vshards[at : at + VSHARDS_PER_STEP] for at in range(0, len(vshards), VSHARDS_PER_STEP)]


def surplus(shards: ClusterState, me: str, held: int) -> int:
    """Return the mask of held but unwanted virtual shards whose owners all hold them whole and up to date. Empty if the
    membership is unconfirmed by ZooKeeper or has no members."""
    if not (shards.membership.confirmed and shards.members):
        return 0
    extra = held & ~shards.membership.owned_by(me)
    good: Mapping[str, int] = {place.id: place.healthy_vshards for place in shards.live}
    return mask_of(v for v in vshards_of(extra) if all(good.get(o, 0) >> v & 1 for o in shards.membership.owners(v)))


class Rebalancer:
    """Used by one thread, which calls `step` again and again.

    Invariant: a virtual shard is dropped only if all of its owners, none of them this shard, have held it whole for
    GRACE_S; until then it is fed and answers as before."""

    def __init__(self, me: str, shard: Shard, bring: RestoreFrom) -> None:
        self._me, self._shard, self._bring = me, shard, bring
        self._leaving: dict[int, float] = {}
        """By virtual shard: time since which it is surplus."""
        self.problem = ""
        """Reason why the last step did not do everything; empty if it did."""

    def step(self, membership: Membership, shards: ClusterState | None, now_s: float) -> bool:
        """Do one step; return True if anything was moved. `shards`: the state in ZooKeeper; None if it does not answer:
        holders are unknown then and nothing is begun."""
        self.problem = ""
        if shards is None:
            return False
        wanted = lacking(membership, self._me, self._shard.vshards)
        moved = self._restore_next(plan_donors(shards, self._me, wanted)) if wanted else False
        return self._drop_surplus(shards, now_s) or moved

    def _restore_next(self, plan: Sequence[tuple[ShardAddress | None, int]]) -> bool:
        moved = False
        for giver, vshards in plan:
            whom = f"shard {giver.id}" if giver else "snapshots, the raw table or Kafka"
            log.info("taking over %d virtual shards from %s", vshards.bit_count(), whom)
            try:
                self._bring(vshards, giver)
                moved = True
            except Exception as error:  # any error: the next step retries, perhaps elsewhere
                self.problem = f"{vshards.bit_count()} virtual shards not taken over from {whom}: {error}"
                log.warning("%s", self.problem)
        return moved

    def _drop_surplus(self, shards: ClusterState, now_s: float) -> bool:
        going = surplus(shards, self._me, self._shard.vshards)
        self._leaving = {v: self._leaving.get(v, now_s) for v in vshards_of(going)}
        ripe = mask_of(v for v, since in self._leaving.items() if now_s - since >= GRACE_S)
        if not ripe:
            return False
        self._shard.drop(ripe)
        log.info("dropped %d virtual shards, which others hold now", ripe.bit_count())
        return True

    @property
    def leaving(self) -> int:
        """Mask of virtual shards about to be dropped: no longer in the registration."""
        return mask_of(self._leaving)
