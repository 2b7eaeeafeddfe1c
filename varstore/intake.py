"""From a feed range to runs: which rows are new, which slots they have, and how many batches go in one pass."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from artimon.model.batch import Samples
from artimon.model.feed import FeedEntry
from varstore.buckets import Run
from varstore.memory import lazy_zeros
from varstore.slots import NO_SLOT, Fingerprints, Slots, SlotTable

RUN_ROWS = 32_768
"""About what fits in the second-level cache with its temporaries."""
CACHED_ROWS = 8_000_000
"""64 MB of slots at most."""


class Piece(NamedTuple):
    """An owned batch that nobody has seen: rows [start, end) of its range."""

    entry: FeedEntry
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """The slots of one list of fingerprints of one source.

    Invariant: if `home`, no other source was first with any of these slots, so that home blocks of different sources
    never share one."""

    slots: Slots
    first: int
    last: int
    distinct: bool
    home: bool

    def fits(self, fingerprints: Fingerprints) -> bool:
        """Guards against a wrong block hash."""
        ends = (int(fingerprints[0]), int(fingerprints[-1]))
        return len(fingerprints) == len(self.slots) and ends == (self.first, self.last)


class Intake:
    """Finds slots and groups batches. Not locked: the owner's lock guards it, and the table."""

    def __init__(self, table: SlotTable, cached_rows: int = CACHED_ROWS) -> None:
        self._table = table
        self._cached_rows = cached_rows
        self._cache: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._held_rows = 0
        self._sources: dict[str, int] = {}
        self._home: npt.NDArray[np.int32] = lazy_zeros(table.capacity, np.int32)  # number of the source, 0: none

    def runs(self, pieces: Sequence[Piece], samples: Samples) -> Iterator[Run]:
        """Runs of whole batches in the order of the pieces; apply each before you ask for the next."""
        group: list[tuple[Piece, Block]] = []
        sources: set[str] = set()
        for piece in pieces:
            block = self._block(piece, samples.fingerprint[piece.start : piece.end])
            alone = not (block.distinct and block.home)
            if group and (
                alone
                or piece.entry.source in sources
                or piece.start != group[-1][0].end
                or piece.end - group[0][0].start > RUN_ROWS
            ):
                yield _run(group, samples)
                group, sources = [], set()
            group.append((piece, block))
            sources.add(piece.entry.source)
            if alone:
                yield _run(group, samples)
                group, sources = [], set()
        if group:
            yield _run(group, samples)

    def _block(self, piece: Piece, fingerprints: Fingerprints) -> Block:
        key = (piece.entry.source, piece.entry.block_hash)
        block = self._cache.get(key)
        if block is not None and block.fits(fingerprints):
            self._cache.move_to_end(key)
            return block
        fresh = self._look_up(piece.entry.source, fingerprints)
        if NO_SLOT not in fresh.slots:  # a refused series is looked up again, so that it is counted again
            self._remember(key, fresh)
        return fresh

    def _look_up(self, source: str, fingerprints: Fingerprints) -> Block:
        slots = self._table.add(fingerprints)
        known = slots[slots != NO_SLOT]
        number = self._sources.setdefault(source, len(self._sources) + 1)
        home = self._home.take(known)
        self._home[known[home == 0]] = number
        return Block(
            slots,
            int(fingerprints[0]),
            int(fingerprints[-1]),
            len(np.unique(known)) == len(known),
            bool(((home == 0) | (home == number)).all()),
        )

    def _remember(self, key: tuple[str, int], block: Block) -> None:
        old = self._cache.pop(key, None)
        self._held_rows += len(block.slots) - (0 if old is None else len(old.slots))
        self._cache[key] = block
        while self._held_rows > self._cached_rows:
            _, gone = self._cache.popitem(last=False)
            self._held_rows -= len(gone.slots)


def _run(group: Sequence[tuple[Piece, Block]], samples: Samples) -> Run:
    rows = slice(group[0][0].start, group[-1][0].end)
    blocks = [block.slots for _, block in group]
    return Run(
        blocks[0] if len(blocks) == 1 else np.concatenate(blocks),
        samples.time_ms[rows],
        samples.birth_ms[rows],
        samples.type[rows],
        samples.cell[rows],
        np.array([piece.entry.append_ms for piece, _ in group], np.int64),
        np.array([piece.end - piece.start for piece, _ in group], np.int64),
        all(block.distinct for _, block in group),
        samples.strings,
    )
