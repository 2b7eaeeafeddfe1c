"""Numbers of series and label values, and the names and labels that have most of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_TOP = 1_000
"""Entries of a list."""


@dataclass(frozen=True, slots=True)
class Cardinality:
    """Counts of series; a series that two sources report counts twice. Each mapping holds the greatest entries only."""

    series: int = 0
    pairs: int = 0
    """Distinct pairs of label and value."""
    series_by_name: Mapping[str, int] = field(default_factory=dict)
    values_by_label: Mapping[str, int] = field(default_factory=dict)
    """Distinct values of each label."""
    bytes_by_label: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the distinct values of each label."""
    series_by_pair: Mapping[str, int] = field(default_factory=dict)
    """Series of each `label=value`."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cardinality:
        return cls(**data)


def greatest(counts: Mapping[str, int], top: int) -> dict[str, int]:
    """Return the `top` greatest entries, in descending order."""
    return dict(heapq.nsmallest(top, counts.items(), key=lambda one: (-one[1], one[0])))


def merge_cardinality(parts: Iterable[Cardinality], top: int) -> Cardinality:
    """Unite disjoint parts: series add up; of distinct values the greatest part counts, a lower bound."""
    found = list(parts)
    names: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    values: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one in found:
        names.update(one.series_by_name)
        pairs.update(one.series_by_pair)
        values |= Counter(one.values_by_label)
        sizes |= Counter(one.bytes_by_label)
    return Cardinality(
        sum(one.series for one in found),
        max((one.pairs for one in found), default=0),
        greatest(names, top),
        greatest(values, top),
        greatest(sizes, top),
        greatest(pairs, top),
    )
