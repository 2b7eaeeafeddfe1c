"""Time buckets. A bucket is named by its end e and covers (e - step, e]; a grid is n consecutive buckets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class GridError(ValueError):
    """An invalid grid or level."""


@dataclass(frozen=True, slots=True)
class Level:
    """A resolution of the memory store: `count` buckets, each `step_s` seconds wide."""

    step_s: int
    count: int

    def __post_init__(self) -> None:
        if self.step_s <= 0 or self.count <= 0:
            raise GridError(f"{self}: use a positive step_s and count")

    @property
    def step_ms(self) -> int:
        return self.step_s * 1000

    @property
    def span_ms(self) -> int:
        return self.step_ms * self.count


DEFAULT_LEVELS = (Level(60, 60), Level(300, 48), Level(900, 96), Level(3600, 72))


def parse_levels(text: str) -> tuple[Level, ...]:
    """Parse levels such as "60x60,300x48": step in seconds x buckets, finest first. Raises GridError."""
    levels = []
    for part in text.split(","):
        step, times, count = part.strip().partition("x")
        if not (times and step.isascii() and step.isdigit() and count.isascii() and count.isdigit()):
            raise GridError(f"levels {text!r}: write SECONDSxBUCKETS by comma, such as {levels_text(DEFAULT_LEVELS)}")
        levels.append(Level(int(step), int(count)))
    if any(a.step_s >= b.step_s for a, b in pairwise(levels)):
        raise GridError(f"levels {text!r}: each step must be wider than the one before")
    return tuple(levels)


def levels_text(levels: Iterable[Level]) -> str:
    """Inverse of `parse_levels`."""
    return ",".join(f"{level.step_s}x{level.count}" for level in levels)


@dataclass(frozen=True, slots=True)
class Grid:
    """`n` buckets of `step_ms` milliseconds; the last one ends at `end_ms`.

    Raises GridError unless step and n are positive."""

    end_ms: int
    step_ms: int
    n: int

    def __post_init__(self) -> None:
        if self.step_ms <= 0 or self.n <= 0:
            raise GridError(f"{self}: use a positive step and at least one bucket")

    @property
    def start_ms(self) -> int:
        """Left edge of the first bucket, exclusive."""
        return self.end_ms - self.n * self.step_ms

    def ends(self) -> Times:
        """Return the ends of the buckets, shape (n,), ascending, epoch milliseconds."""
        return np.arange(self.start_ms + self.step_ms, self.end_ms + 1, self.step_ms, dtype=np.int64)

    def widen(self, before: int) -> Grid:
        """Return the grid with `before` more buckets on the left."""
        return Grid(self.end_ms, self.step_ms, self.n + before)


def bucket_end(time_ms: int, step_ms: int) -> int:
    """Return the end of the bucket of width `step_ms` that holds `time_ms`."""
    return -(-time_ms // step_ms) * step_ms


def bucket_ends(time_ms: Times, step_ms: int) -> Times:
    """Return the ends of the buckets that hold `time_ms`, element by element."""
    return -(-time_ms // step_ms) * step_ms
