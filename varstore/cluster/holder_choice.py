"""Choice of the live shard to ask for each virtual shard. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from artimon.model.hash_routing import VIRTUAL_SHARDS, owners_of
from artimon.model.vshards import union, vshards_of
from varstore.cluster.cluster_directory import ClusterState, ShardAddress

WHOLE, LAGGING, REFILLING = range(3)
"""Quality of a holder; a lagging or refilling one says so in its answer, which is better than no answer."""


@dataclass(frozen=True, slots=True)
class HolderChoice:
    """One shard and the virtual shards that it is asked for."""

    address: ShardAddress
    vshards: int


def choose_holders(
    live: Iterable[ShardAddress], wanted: int, avoid: frozenset[ShardAddress] = frozenset(), worst: int = REFILLING
) -> tuple[list[HolderChoice], int]:
    """Return the best holder of each wanted virtual shard (mask), and the mask of those without a holder.

    Whole holders come before lagging ones, these before refilling ones; within each, holders to avoid (they just hung
    or failed) come last. Among equals the rank of rendezvous hashing spreads the load."""
    places = tuple(live)
    tiers = tuple(
        (p.healthy_vshards, p.lagging_vshards & p.ready_vshards, p.held_vshards & ~p.ready_vshards) for p in places
    )
    avoided = tuple(place in avoid for place in places)
    chosen, nobody = _choose_cached(tuple(place.id for place in places), tiers, avoided, wanted, worst)
    return [HolderChoice(places[at], mask) for at, mask in chosen], nobody


@lru_cache(maxsize=64)  # the same arguments repeat while nothing changes
def _choose_cached(
    ids: tuple[str, ...], tiers: tuple[tuple[int, int, int], ...], avoided: tuple[bool, ...], wanted: int, worst: int
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return (index, mask) of the shards to ask, and the mask without a holder."""
    orders = _rank_orders(ids)
    chosen: dict[int, int] = {}
    left = wanted
    for tier in range(worst + 1):
        for avoiding in (False, True):
            masks = [held[tier] & left if avoid == avoiding else 0 for held, avoid in zip(tiers, avoided, strict=True)]
            for vshard in vshards_of(union(masks)):
                at = next(i for i in orders[vshard] if masks[i] >> vshard & 1)
                chosen[at] = chosen.get(at, 0) | 1 << vshard
            left &= ~union(masks)
            if not left:
                return tuple(sorted(chosen.items())), 0
    return tuple(sorted(chosen.items())), left


@lru_cache(maxsize=32)
def _rank_orders(ids: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return, for each virtual shard, the indices of `ids` in the order of their ranks."""
    at = {id_: i for i, id_ in enumerate(ids)}
    return tuple(tuple(at[id_] for id_ in owners_of(v, ids, len(ids))) for v in range(VIRTUAL_SHARDS))


def missing_notes(shards: ClusterState, missing: int, failures: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    """Return one sentence for each reason why virtual shards are missing; `failures`: (mask, failure of a request)."""
    notes: dict[str, int] = {}
    reasons = list(failures)
    absent = set(shards.absent)
    for vshard in vshards_of(missing):
        found = [text for mask, text in reasons if mask >> vshard & 1]
        gone = [member for member in shards.membership.owners(vshard) if member in absent] if shards.members else []
        if found:
            text = found[0]
        elif gone:
            text = (
                " and ".join(f"shard {member}" for member in gone) + f" {'is' if len(gone) == 1 else 'are'} not alive"
            )
        else:
            text = "no shard holds them yet"
        notes[text] = notes.get(text, 0) + 1
    return tuple(f"{text}: series of {n} of {VIRTUAL_SHARDS} virtual shards are missing" for text, n in notes.items())
