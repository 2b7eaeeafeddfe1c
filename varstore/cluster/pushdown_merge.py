"""Push-down over several shards: merges partial results; series held by two shards (twins) are reduced only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from artimon.compute.aggregate import (
    NO_FINGERPRINTS,
    Aggregate,
    AggregateRequest,
    Fingerprints,
    NotPushed,
    aggregate_buckets,
    merge_aggregates,
    reduce_gathered,
)
from artimon.compute.gathered import count_values
from artimon.compute.ranks import ORDERED
from artimon.compute.true_sums import BEYOND_64_BITS
from artimon.model.select import Buckets, SelectRequest, too_many_series

MAX_TWINS = 50_000
MAX_GATHERED = 20_000_000
"""Values that are sorted together, 26 bytes each."""
MAX_ATTEMPTS = 3

AskAll = Callable[[AggregateRequest], tuple[Sequence[Aggregate], tuple[str, ...]]]
"""Returns the answers of all shards, and a note for each missing one."""
SelectAll = Callable[[SelectRequest], Buckets]


def aggregate_all(request: AggregateRequest, ask: AskAll, select: SelectAll, alone: bool = False) -> Aggregate:
    """Return one answer from all shards. `select` merges twins by itself; `alone`: the only shard asked does so too.

    Raises what they raise, SelectError beyond the limit, NotPushed if twins are too many or keep changing."""
    asked = replace(request, with_fingerprints=not alone, gather=request.reducer in ORDERED and not alone)
    excluded: Fingerprints = NO_FINGERPRINTS
    for _ in range(MAX_ATTEMPTS):
        parts, absent = ask(replace(asked, exclude=tuple(excluded.tolist())))
        twins = twins_of(parts)
        if not len(twins):
            return _complete(request, parts, absent, excluded, select)
        excluded = np.union1d(excluded, twins)
        if len(excluded) > MAX_TWINS:
            raise NotPushed(f"{len(excluded)} series are held by two shards")
    raise NotPushed("series move faster than they are read")


def twins_of(parts: Sequence[Aggregate]) -> Fingerprints:
    """Return fingerprints that are in two answers, sorted. Those of one answer are distinct and sorted."""
    if len(parts) < 2:
        return NO_FINGERPRINTS
    prints = np.sort(np.concatenate([part.fingerprints for part in parts]), kind="stable")  # merges sorted runs
    return np.unique(prints[1:][prints[1:] == prints[:-1]])


def _complete(
    request: AggregateRequest,
    parts: Sequence[Aggregate],
    absent: tuple[str, ...],
    excluded: Fingerprints,
    select: SelectAll,
) -> Aggregate:
    parts = list(parts)
    if len(excluded):
        buckets = select(replace(request.buckets(), only=tuple(excluded.tolist())))
        if any(BEYOND_64_BITS in note for note in buckets.notes):
            raise NotPushed("a sum exceeds 64 bits")
        gather = any(part.gathered is not None for part in parts)
        parts.append(aggregate_buckets(buckets, replace(request, with_fingerprints=False, gather=gather)))
    if sum(count_values(part.gathered or ()) for part in parts) > MAX_GATHERED:
        raise NotPushed(f"the shards have more than {MAX_GATHERED} values to be sorted together")
    found = reduce_gathered(merge_aggregates(parts), request)
    if found.counts.selected > request.limit:
        raise too_many_series(found.counts.selected, request.limit)
    notes = tuple(dict.fromkeys(found.notes + absent))
    return replace(found, fingerprints=NO_FINGERPRINTS, notes=notes, partial=found.partial or bool(absent))
