"""A plain, slow memory store that keeps every accepted sample in lists and computes each answer from scratch.

Written from design.md alone, sample by sample, without the arrays, rounds and short cuts of the real one.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Value = int | float | bool | str
Key = int | tuple[int, int]
"""Virtual shard and fingerprint, the identity of a series in the store; the fingerprint alone if there is one virtual
shard."""
LEVELS = ((60_000, 60, 19), (300_000, 48, 4), (900_000, 96, 4), (3_600_000, 72, 4))
"""(step, buckets, spare rows) of each level."""


@dataclass
class Sample:
    time: int
    birth: int
    value: Value


@dataclass
class Known:
    """One series."""

    type: type
    double_from: int
    samples: list[Sample] = field(default_factory=list)
    in_level: dict[int, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    lives: dict[int, list[Sample]] = field(default_factory=dict)
    """Samples by birth."""


def end_of(time: int, step: int) -> int:
    """Return the end of the bucket of `time`."""
    return time + (-time) % step


def order(value: Value) -> tuple[float, int] | str:
    """Return a sort key that decides which of two values at one time is the last."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return (0, bits if bits >= 0 else -(bits & (2**63 - 1)) - 1)
    return (0, int(value))


def last_of(samples: list[Sample]) -> Sample:
    """Return the last sample."""
    latest = max(s.time for s in samples)
    return max((s for s in samples if s.time == latest), key=lambda s: order(s.value))


class Reference:
    def __init__(self) -> None:
        self.series: dict[Key, Known] = {}
        self.ends: dict[Key, int] = {}
        self.opened: dict[tuple[int, int], int] = {}  # (step, row) -> greatest bucket number
        self.head = 0
        self.applied = self.late = self.future = self.conflicts = 0

    def hours_before_head(self, hours: int) -> int:
        """Return the time this many hours before the end of the hour of the head."""
        return end_of(self.head, 3_600_000) - hours * 3_600_000

    def forget_silent(self, prints: Iterable[Key]) -> None:
        """Forget series that were silent for longer than the longest level and four hours."""
        for print_ in prints:
            samples = self.series[print_].samples if print_ in self.series else []
            heard = max([s.time for s in samples] + [self.ends.get(print_, 0)])
            if heard <= self.hours_before_head(72 + 4 + 4):
                self.series.pop(print_, None)
                self.ends.pop(print_, None)

    def too_old(self, append: int, level: tuple[int, int, int]) -> int:
        """Return the greatest time that a level no longer takes."""
        step, count, spare = level
        return end_of(append, step) - (count + spare - 2) * step

    def apply(self, append: int, rows: Sequence[tuple[Key, int, int, Value | None]]) -> None:
        """Apply one batch."""
        self.head = max(self.head, append)
        self.forget_silent({row[0] for row in rows})
        for print_, time, birth, value in rows:
            if value is None:
                if self.hours_before_head(72 + 4 + 4) < time <= append + 60_000:
                    self.ends[print_] = max(time, self.ends.get(print_, 0))
                continue
            levels = [level for level in LEVELS if time > self.too_old(append, level)]
            if time > append + 60_000:
                self.future += 1
            elif not levels:
                self.late += 1
            else:
                self._accept(print_, Sample(time, birth, value), levels)

    def _accept(self, print_: Key, sample: Sample, levels: list[tuple[int, int, int]]) -> None:
        known = self.series.get(print_)
        kind = type(sample.value)
        if known is None:
            known = self.series[print_] = Known(kind, sample.time)
        elif known.type is int and kind is float:
            known.type, known.double_from = float, sample.time
            for old in known.samples:
                old.value = float(old.value)
        elif known.type is float and kind is int and sample.time < known.double_from:
            sample.value = float(sample.value)
        elif known.type is not kind:
            self.conflicts += 1
            return
        self.applied += 1
        known.samples.append(sample)
        life = known.lives.setdefault(sample.birth, [])
        # an older incarnation that was silent for twice the longest level begins anew if it continues
        if sample.birth < max(known.lives) and life and last_of(life).time <= self.hours_before_head(74 + 76):
            life.clear()
        life.append(sample)
        for step, count, spare in levels:
            number = end_of(sample.time, step) // step
            row = (step, number % (count + spare))
            self.opened[row] = max(number, self.opened.get(row, number))
            known.in_level[step].append(sample)

    def bucket(self, print_: Key, level: tuple[int, int, int], end: int) -> list[Sample]:
        """Return the samples of one bucket; none if its row was reused for a later one."""
        step, count, spare = level
        if print_ not in self.series or self.opened.get((step, end // step % (count + spare))) != end // step:
            return []
        return [s for s in self.series[print_].in_level[step] if end_of(s.time, step) == end]

    def lives(self, print_: Key) -> list[tuple[int, int, int, Value]]:
        """Return (birth, first time, last time, last value) of each incarnation, sorted by birth."""
        floor = min(self.too_old(self.head, level) for level in LEVELS)
        by_birth = self.series[print_].lives
        found = []
        for birth in sorted(by_birth):
            last = last_of(by_birth[birth])
            if birth == max(by_birth) or last.time > floor:
                found.append((birth, min(s.time for s in by_birth[birth]), last.time, last.value))
        return found

    def newest(self, print_: Key) -> int:
        """Return the time of the newest sample."""
        return max(s.time for s in self.series[print_].samples)

    def ended(self, print_: Key) -> int:
        """Return the time at which the series ended, 0 if it continues."""
        newest = self.newest(print_) if print_ in self.series else 0
        end = self.ends.get(print_, 0)
        return end if end >= newest else 0


def least(values: list[float]) -> float:
    """Return the minimum; NaN if a value is NaN."""
    return math.nan if any(math.isnan(v) for v in values) else min(values)


def greatest(values: list[float]) -> float:
    """Return the maximum; NaN if a value is NaN."""
    return math.nan if any(math.isnan(v) for v in values) else max(values)
