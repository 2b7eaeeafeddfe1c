"""rate, increase and delta of whole buckets, compared with those of the same raw samples.

Times are shared by all series, by the series of a process, or by none: factors of equal times are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.packed_samples import PackedSamples, make_windows
from artimon.compute.rolling_extrapolation import RollingExtrapolated
from artimon.compute.rolling_windows import ClassOrder, MaskOrBool, RollingContext, WindowValues
from artimon.compute.sample_windows import WINDOWED
from artimon.compute.window_frames import WindowFrame
from tests.seeds import fixed_and_drawn

MINUTE = 60_000
T = 1_800_000_000_000
SERIES, BUCKETS = 320, 14


@dataclass(frozen=True)
class Bucket:
    """One sample of each present series."""

    present: MaskOrBool
    values: Floats
    double: bool
    times_ms: Ints
    count: npt.NDArray[np.integer] | None = None

    def cells(self, statistic: str) -> Ints:
        if statistic == "last_time":
            return self.times_ms
        return self.values.view(np.int64) if self.double else self.values.astype(np.int64)


class Samples:
    """Random counters: some begin at zero, some are reset, some buckets are empty."""

    def __init__(self, seed: int, gaps: bool) -> None:
        random, rng = Random(seed), np.random.default_rng(seed)
        self.double, group = random.choice([True, False]), random.choice([SERIES, 64, 20, 1])
        level = rng.integers(0, random.choice([1, 50, 10**9]), SERIES).astype(np.float64)
        self.buckets: list[Bucket | None] = []
        phase = np.repeat(rng.integers(1, MINUTE, -(-SERIES // group)), group)[:SERIES]
        for bucket in range(BUCKETS):
            grown = level + rng.integers(0, 100, SERIES) * (rng.random(SERIES) < 0.8)
            level = np.where(rng.random(SERIES) < random.choice([0, 0.02]), rng.integers(0, 9, SERIES), grown)
            offsets = np.clip(phase + random.choice([-900, 0, 0, 700]), 1, MINUTE)
            shared = random.random() < 0.5 and group == SERIES
            times = np.broadcast_to(offsets[0], (SERIES,)) if shared else offsets
            present: MaskOrBool = True
            if gaps and random.random() < 0.5:
                present = rng.random(SERIES) < 0.7
                present[0] = True
            empty = gaps and random.random() < 0.1
            self.buckets.append(None if empty else Bucket(present, level, self.double, self._at(bucket, times)))

    @staticmethod
    def _at(bucket: int, offsets: Ints) -> Ints:
        left = T + bucket * MINUTE
        return np.broadcast_to(offsets[0] + left, offsets.shape) if not offsets.strides[0] else offsets + left

    def packed(self) -> PackedSamples:
        """Return all samples."""
        held = [bucket for bucket in self.buckets if bucket is not None]
        here = np.stack([np.broadcast_to(bucket.present, (SERIES,)) for bucket in held], axis=1)
        values, times = (np.stack(some, axis=1) for some in zip(*((b.values, b.times_ms) for b in held), strict=True))
        offsets = np.concatenate(([0], np.cumsum(here.sum(axis=1)))).astype(np.int64)
        return PackedSamples(offsets, times[here], values[here])


def context(
    samples: Samples, width: int, summed: ClassOrder | None = None, members: MaskOrBool = True
) -> RollingContext:
    ends = np.arange(width - 1, BUCKETS)
    frame = WindowFrame(ends, width, T + (ends + 1) * MINUTE, width * MINUTE, 0)
    args = {"range_ms": width * MINUTE, "shift_ms": 0}
    return RollingContext(
        frame=frame, rows=SERIES, step_ms=MINUTE, start_ms=T, double=samples.double, args=args, summed=summed,
        members=members,
    )  # fmt: skip


def results(
    samples: Samples, name: str, width: int, summed: ClassOrder | None = None, members: MaskOrBool = True
) -> Iterator[WindowValues]:
    """Yield the values of each window, computed bucket by bucket."""
    rolling = RollingExtrapolated(context(samples, width, summed, members), name)
    for at, bucket in enumerate(samples.buckets):
        rolling.push(bucket)
        if at >= width - 1:
            yield rolling.result()


def rolled(samples: Samples, name: str, width: int) -> tuple[Floats, Bools]:
    """Return values and presence of all windows, (series, windows)."""
    values, present = [], []
    for found in results(samples, name, width):
        values.append(found.cells.view(np.float64).copy())
        present.append(np.broadcast_to(found.present, (SERIES,)).copy())
    return np.stack(values, axis=1), np.stack(present, axis=1)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", fixed_and_drawn(range(12), "rolling extrapolation", 6))
def test_windows_of_buckets_equal_those_of_samples(seed: int, gaps: bool) -> None:
    samples = Samples(seed, gaps)
    for width in (1, 2, 5):
        ends_ms = T + np.arange(width, BUCKETS + 1) * MINUTE
        windows = make_windows(samples.packed(), ends_ms, width * MINUTE, lambda: None)
        for name in ("rate", "increase", "delta"):
            values, present = rolled(samples, name, width)
            wanted, there = WINDOWED[name](windows)
            assert np.array_equal(present, there)
            assert np.allclose(values[there], wanted[there], rtol=1e-12, atol=0)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", fixed_and_drawn(range(24), "sums of classes", 8))
def test_sums_of_classes_equal_those_of_the_values(seed: int, gaps: bool) -> None:
    """Of all series, or of some; the others stand between them, with arbitrary cells."""
    samples, random, rng = Samples(seed, gaps), Random(seed), np.random.default_rng(seed)
    classes = rng.integers(0, random.choice([1, 3, 40]), SERIES)
    shown = rng.random(SERIES) < random.choice([0.8, 1.1])
    add_strangers(samples, ~shown, rng)
    order = np.argsort(classes, kind="stable")
    order = order[shown[order]]
    starts = np.flatnonzero(np.diff(classes[order], prepend=-1))
    members: MaskOrBool = True if shown.all() else shown
    for width in (1, 2, 5):
        for name in ("rate", "increase", "delta"):
            alone, present = rolled(samples, name, width)
            for at, found in enumerate(results(samples, name, width, ClassOrder(order, starts), members)):
                there = present[:, at]
                if found.sums is None:
                    assert np.array_equal(np.broadcast_to(found.present, (SERIES,))[shown], there[shown])
                    there = there & shown
                    assert np.array_equal(found.cells.view(np.float64)[there], alone[there, at])
                else:
                    assert there[shown].all()
                    wanted = np.add.reduceat(alone[order, at], starts)
                    size = np.add.reduceat(np.abs(alone[order, at]), starts)
                    assert (np.abs(found.sums - wanted) <= 1e-12 * size + 1e-300).all()


def add_strangers(samples: Samples, strangers: Bools, rng: np.random.Generator) -> None:
    """Give some series arbitrary values and times, as slots have that are read but do not belong to a query."""
    for at, bucket in enumerate(samples.buckets):
        if bucket is not None and strangers.any():
            values, times = bucket.values.copy(), bucket.times_ms.copy()
            values[strangers] = rng.integers(-(10**12), 10**12, strangers.sum())
            times[strangers] = rng.integers(0, 2 * T, strangers.sum())
            samples.buckets[at] = replace(bucket, values=values, times_ms=times)


@pytest.mark.parametrize("group", [SERIES, 64, 20])
def test_counters_of_one_poll_are_summed_before_they_are_extrapolated(group: int) -> None:
    """The usual case does not compute the series alone, whether one process has all of them or many have some."""
    samples = Samples(3, gaps=False)
    order = np.arange(SERIES)
    phase = np.repeat(np.random.default_rng(5).integers(20_000, 40_000, -(-SERIES // group)), group)[:SERIES]
    samples.buckets = [
        Bucket(True, np.full(SERIES, 10.0**6 + 50.0 * at), False, phase + T + at * MINUTE) for at in range(BUCKETS)
    ]
    samples.double = False
    classes = ClassOrder(order, np.arange(0, SERIES, 80))
    assert all(found.sums is not None for found in results(samples, "rate", 5, classes))
