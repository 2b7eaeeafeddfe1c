"""Admission of feed ranges: check a range, trim it to the next offset, and drop repeats by identity."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from artimon.model.batch import BatchError, Samples
from artimon.model.feed_codec import FeedAnswer, FeedRange
from artimon.model.hash_routing import virtual_shard
from artimon.model.values import ValueType
from varstore.store.feed_groups import FeedGroup, FeedGroups, Partition
from varstore.store.run_builder import OwnedBatch


def check_range(range_: FeedRange) -> None:
    """Raise BatchError unless offsets rise inside [start, until) and rows add up; a bad range is not applied at all."""
    where = f"feed of {range_.topic_id}/{range_.partition} [{range_.start}, {range_.until})"
    last = range_.start - 1
    for entry in range_.entries:
        if not last < entry.offset < range_.until:
            raise BatchError(f"{where}: offset {entry.offset} after {last}: offsets must rise inside the range")
        if entry.rows and not (entry.owned and entry.id is not None):
            raise BatchError(f"{where}: {entry.rows} rows at offset {entry.offset}, which this shard does not own")
        last = entry.offset
    rows = sum(entry.rows for entry in range_.entries)
    if range_.until < range_.start or rows != len(range_.samples):
        raise BatchError(f"{where}: entries announce {rows} rows, {len(range_.samples)} came")
    _check_types(where, range_.samples)


def _check_types(where: str, samples: Samples) -> None:
    counts = {code: int(np.count_nonzero(samples.type == code)) for code in ValueType}
    strings = counts[ValueType.STRING]
    if sum(counts.values()) != len(samples):
        raise BatchError(f"{where}: unknown type codes, use {[int(t) for t in ValueType]}")
    if strings:
        cells = samples.cell[samples.type == ValueType.STRING]
        if int(cells.min()) < 0 or int(cells.max()) >= len(samples.strings):
            raise BatchError(f"{where}: a string index is outside the {len(samples.strings)} strings")


@lru_cache(maxsize=65_536)
def vshard_of(source: str) -> int:
    """Cached `virtual_shard`."""
    return virtual_shard(source)


def check_owned(vshards: int, range_: FeedRange, shard: str) -> None:
    """Raise BatchError unless exactly the batches of these virtual shards are owned: rows of others would be counted
    twice, missing rows would be lost."""
    for source, owned in {(entry.source, entry.owned) for entry in range_.entries if entry.id is not None}:
        vshard = vshard_of(source)
        if owned and not vshards >> vshard & 1:
            raise BatchError(f"virtual shard {vshard} of {source} is not owned by shard {shard}: ask for its groups")
        if not owned and vshards >> vshard & 1:
            raise BatchError(f"virtual shard {vshard} of {source} is owned by shard {shard}, but came without rows")


class AdmittedRange(NamedTuple):
    """Partition of a range with new batches, and the group that it is for."""

    key: Partition
    group: FeedGroup


def admit(groups: FeedGroups, range_: FeedRange, shard: str) -> AdmittedRange | FeedAnswer:
    """Return the target of a checked range, or the answer if it begins above the next offset (a gap) or is not new.
    Raises BatchError (GroupChanged) if it does not match the virtual shards of this process."""
    group = groups.get(range_.vshards)
    check_owned(group.vshards, range_, shard)
    key = Partition(range_.topic_id, range_.partition)
    if not range_.start <= group.next_offset(key) < range_.until:
        return FeedAnswer(group.next_offset(key))
    return AdmittedRange(key, group)


def advance(groups: FeedGroups, admitted: AdmittedRange, range_: FeedRange) -> None:
    """Set the next offset after a whole range was applied. A range without entries means Kafka deleted its offsets."""
    if not range_.entries:
        admitted.group.mark_lost(admitted.key, range_.until)
    admitted.group.positions[admitted.key] = range_.until
    groups.merge(admitted.group, admitted.key.topic_id)


def drop_repeats(group: FeedGroup, range_: FeedRange) -> tuple[list[OwnedBatch], int]:
    """Skip entries below the next offset, drop repeats by identity, and record the numbers of the rest in `lanes`.
    Return the pieces to apply, and the number of owned batches that were repeats."""
    pieces = list[OwnedBatch]()
    row = newest = repeated = 0
    below = group.next_offset(Partition(range_.topic_id, range_.partition))
    for entry in range_.entries:
        start, row = row, row + entry.rows
        if entry.offset < below or entry.id is None:
            continue
        lane = entry.id.lane_id
        newest = max(newest, entry.append_ms)
        group.last_ms[lane] = max(entry.append_ms, group.last_ms.get(lane, 0))
        if not group.lanes.add(lane, entry.id.sequence):
            repeated += entry.owned
        elif entry.rows:
            pieces.append(OwnedBatch(entry, start, row))
    group.forget_lanes(newest)
    return pieces, repeated
