"""How far a shard has read each partition, and which batches it has seen there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from artimon.model.batch import BatchError, Samples
from artimon.model.feed import FeedRange
from artimon.model.ranges import LaneRanges
from artimon.model.values import ValueType
from varstore.intake import Piece


class Partition(NamedTuple):
    """One partition of one topic; a topic made anew has another id, and starts at 0."""

    topic_id: str
    partition: int


@dataclass(slots=True)
class Progress:
    """Invariant: every batch below `next_offset` has been applied or was a repeat, and its number stands in `lanes`.

    `lanes` is shared by all partitions of all topics: what agents send again to a topic made anew is a repeat."""

    lanes: LaneRanges
    next_offset: int = 0


@dataclass(slots=True)
class Sifted:
    """What of a range is to be applied, and how many owned batches were repeats."""

    pieces: list[Piece]
    repeated: int


def check_range(range_: FeedRange) -> None:
    """BatchError unless offsets rise inside [start, until) and the rows add up: nothing of such a range is applied."""
    where = f"feed of {range_.topic_id}/{range_.partition} [{range_.start}, {range_.until})"
    last = range_.start - 1
    for entry in range_.entries:
        if not last < entry.offset < range_.until:
            raise BatchError(f"{where}: offset {entry.offset} after {last}, they must rise and stay inside")
        if entry.rows and not (entry.owned and entry.id is not None):
            raise BatchError(f"{where}: {entry.rows} rows at offset {entry.offset}, which this shard does not own")
        last = entry.offset
    rows = sum(entry.rows for entry in range_.entries)
    if range_.until < range_.start or rows != len(range_.samples):
        raise BatchError(f"{where}: entries promise {rows} rows, {len(range_.samples)} came")
    _check_types(where, range_.samples)


def _check_types(where: str, samples: Samples) -> None:
    counts = np.bincount(samples.type, minlength=256)
    strings = int(counts[ValueType.STRING])
    if int(counts[list(ValueType)].sum()) != len(samples):
        raise BatchError(f"{where}: type codes other than {[int(t) for t in ValueType]}")
    if strings:
        cells = samples.cell[samples.type == ValueType.STRING]
        if int(cells.min()) < 0 or int(cells.max()) >= len(samples.strings):
            raise BatchError(f"{where}: a string beyond the {len(samples.strings)} that came")


def sift(progress: Progress, range_: FeedRange) -> Sifted:
    """Trim what lies below the next offset, drop repeats by identity, note the numbers of all the rest."""
    sifted = Sifted([], 0)
    row = 0
    for entry in range_.entries:
        start, row = row, row + entry.rows
        if entry.offset < progress.next_offset or entry.id is None:
            continue
        if not progress.lanes.add(entry.id.lane_id, entry.id.sequence):
            sifted.repeated += entry.owned
        elif entry.rows:
            sifted.pieces.append(Piece(entry, start, row))
    return sifted
