"""Transfer of the values of all members from several stores to one place, for reducers without partials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Ints
from artimon.compute.ranks import MemberBlock

Blocks = tuple[MemberBlock, ...]
_LENGTH = 8
"""Size of the trailer, bytes: the offset at which the blocks begin."""


def renumber_classes(blocks: Blocks, place: Ints) -> Blocks:
    """Renumber class i to place[i]; members of a class with place -1 are removed."""
    return tuple(_renumber(block, place) for block in blocks)


def _renumber(block: MemberBlock, place: Ints) -> MemberBlock:
    codes = place.take(block.codes)
    if not len(codes) or codes.min() >= 0:
        return MemberBlock(codes, block.values, block.present)
    kept = np.flatnonzero(codes >= 0)
    present = None if block.present is None else block.present[:, kept]
    return MemberBlock(codes[kept], block.values[:, kept], present)


def count_values(blocks: Blocks) -> int:
    """Return the number of values in all blocks."""
    return sum(block.values.size for block in blocks)


def block_sizes(blocks: Blocks) -> list[list[int]]:
    """Return the description of each block for `read_blocks`: [members, 1 if it has a mask]."""
    return [[len(block.codes), int(block.present is not None)] for block in blocks]


def write_blocks(before: bytes, blocks: Blocks) -> bytes:
    """Append the blocks to the bytes `before`: codes, values bucket by bucket, the mask as bits."""
    pad = bytes(-len(before) % 8)
    end = (len(before) + len(pad)).to_bytes(_LENGTH, "big")
    return b"".join((before, pad, *(part for block in blocks for part in _written(block)), end))


def _written(block: MemberBlock) -> Iterator[bytes | memoryview]:
    yield block.codes.astype(np.int64, copy=False).tobytes()
    yield np.ascontiguousarray(block.values, np.float64).reshape(-1).view(np.uint8).data
    if block.present is not None:
        bits = np.packbits(block.present.reshape(-1)).tobytes()
        yield bits + bytes(-len(bits) % 8)


def read_blocks(data: bytes, sizes: Sequence[Sequence[Any]], outputs: int) -> Blocks:
    """Inverse of `write_blocks`; values are read-only views. Raises ValueError for other bytes."""
    at, found = int.from_bytes(data[-_LENGTH:], "big"), []
    for members, masked in ((int(size[0]), bool(size[1])) for size in sizes):
        codes = np.frombuffer(data, np.int64, members, at)
        values = np.frombuffer(data, np.float64, members * outputs, at + codes.nbytes).reshape(outputs, members)
        at += codes.nbytes + values.nbytes
        present: npt.NDArray[np.bool_] | None = None
        if masked:
            octets = -(-values.size // 8)
            bits = np.frombuffer(data, np.uint8, octets, at)
            present = np.unpackbits(bits, count=values.size).view(np.bool_).reshape(outputs, members)
            at += octets + -octets % 8
        found.append(MemberBlock(codes, values, present))
    return tuple(found)
