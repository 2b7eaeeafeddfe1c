"""Counts of samples by minute."""

from __future__ import annotations

from collections import Counter

from artimon.model.batch import Samples
from artimon.model.grid import bucket_ends
from artimon.model.values import ValueType

MINUTE_MS = 60_000

Minutes = tuple[tuple[int, int], ...]


def minutes_of(samples: Samples) -> Minutes:
    """(end of the minute in ms, samples with a value in it), ascending."""
    valued = samples.time_ms[samples.type != ValueType.ENDED]
    if not len(valued):
        return ()
    first, last = int(valued.min()), int(valued.max())
    if -(-first // MINUTE_MS) == -(-last // MINUTE_MS):  # samples of one poll nearly always belong to one minute
        return ((-(-first // MINUTE_MS) * MINUTE_MS, len(valued)),)
    counts = Counter(bucket_ends(valued, MINUTE_MS).tolist())
    return tuple(sorted(counts.items()))
