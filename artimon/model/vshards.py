"""Sets of virtual shards as bit masks: bit v is virtual shard v (0..255). On the wire: 64 hex digits."""

from __future__ import annotations

from collections.abc import Iterable

from artimon.model.hash_routing import VIRTUAL_SHARDS

ALL_VSHARDS = (1 << VIRTUAL_SHARDS) - 1
"""Mask of all virtual shards."""


def mask_of(vshards: Iterable[int]) -> int:
    """Return the mask of these virtual shards. Raises ValueError beyond 0..255."""
    mask = 0
    for vshard in vshards:
        if not 0 <= vshard < VIRTUAL_SHARDS:
            raise ValueError(f"virtual shard {vshard}: use 0 to {VIRTUAL_SHARDS - 1}")
        mask |= 1 << vshard
    return mask


def union(masks: Iterable[int]) -> int:
    united = 0
    for mask in masks:
        united |= mask
    return united


def vshards_of(mask: int) -> list[int]:
    """Return the virtual shards of a mask, ascending."""
    return [vshard for vshard in range(VIRTUAL_SHARDS) if mask >> vshard & 1]


def to_hex(mask: int) -> str:
    """Format a mask as 64 hex digits."""
    return f"{mask:064x}"


def from_hex(text: str) -> int:
    """Inverse of `to_hex`, for up to 64 digits. Raises ValueError for other text."""
    mask = int(text, 16)
    if not 0 <= mask <= ALL_VSHARDS:
        raise ValueError(f"{text!r} is not a mask of {VIRTUAL_SHARDS} virtual shards")
    return mask
