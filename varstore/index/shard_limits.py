"""Limits of a shard (series of one name, labels, memory, capacity) and counts of refused series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from artimon.model.grid import Level
from artimon.runtime.process_options import MiB, Option

DEFAULT_CAPACITY = 1_000_000
"""Default capacity of a store in series."""
MAX_FITTED_CAPACITY = 4_000_000
"""Limit of the capacity that follows from memory: more series are for more shards, as one process takes them all in."""
SPARE_ROWS = 4
"""Bucket rows of a level beyond its range: two ahead of the settled end, two for predecessors."""
FINEST_SPARE_ROWS = SPARE_ROWS + 15
"""`SPARE_ROWS` of the finest level: it serves windows that start before the range."""
SERIES_PER_NAME = 200_000
"""Least default limit of the series of one name in a shard."""
NAME_SHARE = 4
"""Share of the capacity that one name may take by default: a quarter."""
LABELS = 1_000
"""Limit of distinct label names in one shard, as each has its own array."""
NAMES_COUNTED = 1_000
WORST_NAMES = 20
_CELL_BYTES, _FINEST_CELL_BYTES = 40, 16
_OPEN_ROWS, _FINEST_OPEN_ROWS = 2, 3
_FINEST_PACKED_BYTES = 10
"""Bytes of a bucket of one sample in a closed row whose values do not repeat: value 8, time 2."""
_SLOT_BYTES = 250
"""Bytes per series of slot, newest life and labels."""


class CapacityLimitError(ValueError):
    """The machine lacks the memory for the configured capacity. The text says how much is needed."""


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """Limits of a shard."""

    series_a_name: Annotated[
        int,
        Option(
            "Series of one name (0: a quarter of the capacity, at least 200,000).",
            "--name-limit",
            min=0,
        ),
    ] = 0
    """0: `of_capacity` settles it."""
    labels: int = LABELS
    memory_bytes: Annotated[
        int,
        Option(
            "MiB beyond which new series are refused (0: 80 %, shared by the shards here).",
            "--memory",
            min=0,
            unit=MiB,
        ),
    ] = 0
    """0: `memory_limit()`."""

    def of_capacity(self, capacity: int) -> ShardLimits:
        """Return the limits of a shard for that many series."""
        return replace(self, series_a_name=self.series_a_name or max(SERIES_PER_NAME, capacity // NAME_SHARE))


DEFAULT_LIMITS = ShardLimits()


class RefusedCounts:
    """Counts of refused announced series by name; of many names the worst are kept. Not locked."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.total = 0

    def note(self, name: str) -> None:
        """Count one more refused series of that name."""
        self.total += 1
        if name not in self._counts and len(self._counts) >= NAMES_COUNTED:
            least = min(self._counts, key=self._counts.__getitem__)
            self._counts[name] = self._counts.pop(least)  # an upper bound: no worse name is lost
        self._counts[name] += 1

    def uncount(self, name: str) -> None:
        """Uncount a series whose refusal was lifted."""
        self.total = max(0, self.total - 1)
        self._counts[name] -= 1
        if self._counts[name] <= 0:
            del self._counts[name]

    def worst(self, n: int = WORST_NAMES) -> list[tuple[str, int]]:
        """Return the names with most refused series, worst first."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:n]


def bytes_per_series(levels: Sequence[Level], on_disk: bool = False) -> int:
    """Return the greatest bytes per series in memory: all rows filled, one sample a bucket in the finest level.

    on_disk: closed rows of the other levels are in files, and those of the finest level are packed; otherwise nothing
    is packed. More samples a bucket of the finest level take more; then the memory limit refuses new series."""
    first, *others = (level.count + (SPARE_ROWS if i else FINEST_SPARE_ROWS) for i, level in enumerate(levels))
    if not on_disk:
        return first * _FINEST_CELL_BYTES + sum(others) * _CELL_BYTES + _SLOT_BYTES
    finest = first * _FINEST_PACKED_BYTES + _FINEST_OPEN_ROWS * _FINEST_CELL_BYTES
    return finest + len(others) * _OPEN_ROWS * _CELL_BYTES + _SLOT_BYTES


def settle_capacity(capacity: int, levels: Sequence[Level], limit: int, on_disk: bool = False) -> int:
    """Return the capacity to reserve; for 0 as many series as `limit` bytes allow, at most MAX_FITTED_CAPACITY.
    Raises CapacityLimitError if a nonzero `capacity` needs more than `limit` bytes."""
    each = bytes_per_series(levels, on_disk)
    fits = max(1, limit // each)
    if capacity == 0:
        return min(MAX_FITTED_CAPACITY, fits)
    if capacity > fits:
        disk = "" if on_disk else ", keep closed buckets on disk (--data, --disk)"
        raise CapacityLimitError(
            f"a capacity of {capacity} series needs up to {capacity * each / 2**30:.1f} GiB, {limit / 2**30:.1f} GiB "
            f"are allowed: state at most {fits}, spread the series over more machines, run fewer shards on this one"
            f"{disk}, or keep fewer buckets"
        )
    return capacity


def refusal_warnings(status: Mapping[str, Any]) -> list[str]:
    """Return warnings about refused series in a `Shard.status`, for the operator."""
    found = []
    if status["memory_full"]:
        found.append("the memory limit is reached: new series are refused")
    elif status["slots"] >= status["capacity"]:
        found.append(f"capacity of {status['capacity']} series reached: samples of new series are refused")
    if status["refused_names"]:
        worst = ", ".join(f"{name} ({count})" for name, count in status["refused_names"][:3])
        found.append(f"{status['refused_series']} announced series are refused, most often of {worst}")
    return found
