"""Moves a shard towards what the membership wants of it: takes over virtual shards, and lets go of those that others
hold whole by now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from artimon.model.vshards import in_mask, mask_of
from varstore.cluster.directory import Place, Shards
from varstore.cluster.membership import Membership

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Virtual shards that are taken over in one go: what a failure half-way costs."""
GRACE_S = 5.0
"""From when a shard says that it will let go of virtual shards until it does: who asks has heard of it by then."""


class Held(Protocol):
    """The part of a shard that is moved."""

    @property
    def vshards(self) -> int:
        """Mask of what is held."""
        ...

    def drop(self, vshards: int) -> int:
        """Let go."""
        ...


Bring = Callable[[int, Place | None], None]
"""Take over these virtual shards (mask) from a live shard that holds them, or, without one, from snapshots, the raw
table, or empty. It raises where that fails; then nothing was taken over."""


def lacking(membership: Membership, me: str, held: int) -> int:
    """Mask of what is to be held and is not."""
    return membership.wanted(me) & ~held


def givers(shards: Shards, me: str, wanted: int) -> list[tuple[Place | None, int]]:
    """From whom to take which of the wanted virtual shards, at most AT_ONCE each time; None: nobody alive has them."""
    found: dict[Place | None, list[int]] = {}
    others = [place for place in shards.live if place.id != me]
    for vshard in in_mask(wanted):
        having = [place for place in others if place.good >> vshard & 1]
        giver = having[vshard % len(having)] if having else None  # replicas share the work
        found.setdefault(giver, []).append(vshard)
    if None in found:  # nothing is copied from anybody: all of it at once
        found[None] = found.pop(None)
    return [
        (giver, mask_of(some))
        for giver, vshards in found.items()
        for some in (_pieces(vshards) if giver is not None else [vshards])
    ]


def _pieces(vshards: Sequence[int]) -> list[Sequence[int]]:
    return [vshards[at : at + AT_ONCE] for at in range(0, len(vshards), AT_ONCE)]


def surplus(shards: Shards, me: str, held: int) -> int:
    """Mask of what is held though it is not to be, and which everybody who is to hold it holds, whole and up to
    date. Nothing without ZooKeeper's word, or by a membership without members."""
    if not (shards.membership.confirmed and shards.members):
        return 0
    extra = held & ~shards.membership.wanted(me)
    good: Mapping[str, int] = {place.id: place.good for place in shards.live}
    return mask_of(v for v in in_mask(extra) if all(good.get(o, 0) >> v & 1 for o in shards.membership.owners(v)))


class Mover:
    """For one thread: `step` again and again.

    Invariant: a virtual shard is let go only if for GRACE_S all of its owners, and this is none of them, have held it
    whole; until then it is fed and answers are given as before."""

    def __init__(self, me: str, shard: Held, bring: Bring) -> None:
        self._me, self._shard, self._bring = me, shard, bring
        self._leaving: dict[int, float] = {}
        """By virtual shard: since when it may go."""
        self.problem = ""
        """Why the last step did not do all that is to be done; empty if it did."""

    def step(self, membership: Membership, shards: Shards | None, now_s: float) -> bool:
        """Whether anything was moved. `shards`: what ZooKeeper says of all; None: it does not answer, so that it is not
        known who has what: nothing is begun."""
        self.problem = ""
        if shards is None:
            return False
        wanted = lacking(membership, self._me, self._shard.vshards)
        moved = self._take(givers(shards, self._me, wanted)) if wanted else False
        return self._let_go(shards, now_s) or moved

    def _take(self, plan: Sequence[tuple[Place | None, int]]) -> bool:
        moved = False
        for giver, vshards in plan:
            whom = f"shard {giver.id}" if giver else "snapshots, the raw table or Kafka"
            log.info("taking over %d virtual shards from %s", vshards.bit_count(), whom)
            try:
                self._bring(vshards, giver)
                moved = True
            except Exception as error:  # whatever it is: the next step tries again, perhaps elsewhere
                self.problem = f"{vshards.bit_count()} virtual shards not taken over from {whom}: {error}"
                log.warning("%s", self.problem)
        return moved

    def _let_go(self, shards: Shards, now_s: float) -> bool:
        going = surplus(shards, self._me, self._shard.vshards)
        self._leaving = {v: self._leaving.get(v, now_s) for v in in_mask(going)}
        ripe = mask_of(v for v, since in self._leaving.items() if now_s - since >= GRACE_S)
        if not ripe:
            return False
        self._shard.drop(ripe)
        log.info("let go of %d virtual shards, which others hold now", ripe.bit_count())
        return True

    @property
    def leaving(self) -> int:
        """Mask of what will be let go: no longer named in the registration."""
        return mask_of(self._leaving)
