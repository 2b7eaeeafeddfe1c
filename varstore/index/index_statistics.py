"""Questions about the index itself: cardinality, and the values of a label among matching series."""

from __future__ import annotations

from collections import Counter

import numpy as np

from artimon.model.cardinality import Cardinality, greatest
from artimon.model.select import NAME, Matcher
from varstore.index.label_index import LabelIndex
from varstore.index.slot_table import Slots


def read_cardinality(index: LabelIndex, top: int, vshards: int | None) -> Cardinality:
    """Count the series of virtual shards (mask; None: all)."""
    slots = index.select((), vshards)
    names = _counts(index, NAME, slots)
    values: dict[str, int] = {NAME: len(names)}
    sizes: dict[str, int] = {NAME: _size(names)}
    pairs: Counter[str] = Counter()
    for label in index.labels_of(slots):
        counts = _counts(index, label, slots)
        values[label], sizes[label] = len(counts), _size(counts)
        pairs.update({f"{label}={value}": count for value, count in greatest(counts, top).items()})
    return Cardinality(
        len(slots),
        sum(values.values()),
        greatest(names, top),
        greatest(values, top),
        greatest(sizes, top),
        greatest(pairs, top),
    )


def matching_values(index: LabelIndex, label: str | None, matchers: tuple[Matcher, ...], limit: int) -> list[str]:
    """Return the first `limit` values that a label has among matching series, sorted; label None: their labels. Raises
    SelectError."""
    slots = index.select(matchers)
    found = index.labels_of(slots) if label is None else sorted(_counts(index, label, slots))
    return found[:limit]


def _counts(index: LabelIndex, label: str, slots: Slots) -> dict[str, int]:
    """Return the number of series by value."""
    codes, values = index.codes(label, slots)
    counts = np.bincount(codes, minlength=len(values)) if len(codes) else np.zeros(len(values), np.int64)
    found: Counter[str] = Counter()
    for code in np.flatnonzero(counts).tolist():
        if values[code]:
            found[values[code]] += int(counts[code])
    return found


def _size(counts: dict[str, int]) -> int:
    return sum(len(value.encode("utf-8", "surrogatepass")) for value in counts)
