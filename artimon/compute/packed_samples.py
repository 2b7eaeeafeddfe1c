"""Raw samples of many series, packed, and their selection: the newest sample within the look-back, and windows.

Windows are open on the left and closed on the right, as in Prometheus 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Floats, Ints
from artimon.model.values import STALE_BITS

Rows = npt.NDArray[np.intp]
MIN_SHARED = 2
"""Search the times of several series at once if each row of times serves this many on average."""
MAX_GATHERED = 2_000_000
"""Cells of windows that are copied at once."""


@dataclass(frozen=True, slots=True)
class PackedSamples:
    """Samples of `count` series: those of series i are at offsets[i] to offsets[i + 1], in the order of time."""

    offsets: Ints
    times_ms: Ints
    values: Floats

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def without_stale(self) -> PackedSamples:
        """Return the samples without markers of ends."""
        keep = ~is_stale(self.values)
        if keep.all():
            return PackedSamples(self.offsets, self.times_ms, self.values)
        kept = np.concatenate(([0], np.cumsum(keep)))[self.offsets]
        return PackedSamples(kept, self.times_ms[keep], self.values[keep])

    def places(self, times_ms: Ints) -> Ints:
        """Return, for each series and time (series, times), the number of samples up to and including that time, as an
        index behind the last of them."""
        if not len(self.times_ms):
            return np.broadcast_to(self.offsets[:-1, None], (self.count, len(times_ms))).copy()
        shared = self._shared_times()
        if shared is not None:
            rows, patterns = shared
            found = np.stack([np.searchsorted(row, times_ms, side="right") for row in rows])
            return self.offsets[:-1, None] + found[patterns]
        base, span = int(self.times_ms.min()), int(self.times_ms.max()) - int(self.times_ms.min()) + 2
        series = np.repeat(np.arange(self.count), np.diff(self.offsets))
        keys = series * span + (self.times_ms - base)
        asked = np.clip(times_ms - base, -1, span - 2)
        wanted = np.arange(self.count)[:, None] * span + asked[None, :]
        places: Ints = np.searchsorted(keys, wanted.ravel(), side="right").reshape(wanted.shape)
        return places

    def _shared_times(self) -> tuple[Ints, Rows] | None:
        """Return the distinct sequences of sample times, and the number of the sequence of each series. Series of one
        poll share theirs. Return None if there are too many different ones."""
        counts = np.diff(self.offsets)
        if len(counts) < 2 or counts[0] == 0 or (counts != counts[0]).any():
            return None
        rows = self.times_ms.reshape(len(counts), -1)
        weights = 2 * np.arange(rows.shape[1], dtype=np.int64) ** 2 + 1
        _, first, patterns = np.unique(rows @ weights, return_index=True, return_inverse=True)
        if len(first) > len(counts) // MIN_SHARED or (rows != rows[first][patterns]).any():
            return None
        return rows[first], patterns


def is_stale(values: Floats) -> Bools:
    """Return a mask of the markers of ends."""
    found: Bools = np.ascontiguousarray(values).view(np.uint64) == STALE_BITS
    return found


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of all series at all steps: samples at first[i, t] to last[i, t] (exclusive) of `samples`.

    `ends_ms`: end of the window of each step; `range_ms`: its length; `check` is called often, and ends the query by an
    error."""

    samples: PackedSamples
    first: Ints
    last: Ints
    ends_ms: Ints
    range_ms: int
    check: Callable[[], object]

    @property
    def counts(self) -> Ints:
        return self.last - self.first

    def at(self, places: Ints) -> tuple[Floats, Ints]:
        """Return values and times at places (series, steps). A place outside of the samples gives the last sample."""
        n = len(self.samples.values)
        if not n:
            return np.full(places.shape, np.nan), np.zeros(places.shape, np.int64)
        inside = np.clip(places, 0, n - 1)
        return self.samples.values[inside], self.samples.times_ms[inside]

    def gathered(self) -> Iterator[GatheredWindows]:
        """Yield the windows that hold a sample, in parts of similar size."""
        counts = self.counts.ravel()
        cells = np.flatnonzero(counts > 0)
        cells = cells[np.argsort(counts[cells], kind="stable")]
        at = 0
        while at < len(cells):
            size = max(1, MAX_GATHERED // int(counts[cells[-1]]))
            longest = int(counts[cells[min(len(cells), at + size) - 1]])
            self.check()
            part = cells[at : at + max(1, MAX_GATHERED // longest)]
            yield self._gather(part, int(counts[part[-1]]))
            at += len(part)

    def _gather(self, cells: Rows, longest: int) -> GatheredWindows:
        first, counts = self.first.ravel()[cells], self.counts.ravel()[cells]
        places = first[:, None] + np.arange(longest)[None, :]
        here = np.arange(longest)[None, :] < counts[:, None]
        places = np.where(here, places, first[:, None])
        values, times_ms = self.samples.values[places], self.samples.times_ms[places]
        return GatheredWindows(cells, values, times_ms, here, counts, cells % self.first.shape[1])


@dataclass(frozen=True, slots=True)
class GatheredWindows:
    """Windows as rows: `here` masks the samples of each; cells beyond it repeat the first sample. `cells`: their places
    in the flattened result; `steps`: number of the step of each."""

    cells: Rows
    values: Floats
    times_ms: Ints
    here: Bools
    counts: Ints
    steps: Ints


def make_windows(samples: PackedSamples, ends_ms: Ints, range_ms: int, check: Callable[[], object]) -> Windows:
    """Return the windows (end - range_ms, end] of all series."""
    whole = samples.without_stale()
    return Windows(whole, whole.places(ends_ms - range_ms), whole.places(ends_ms), ends_ms, range_ms, check)


def newest(samples: PackedSamples, times_ms: Ints, look_back_ms: int) -> tuple[Floats, Ints, Bools]:
    """Return value, time and presence (series, steps) of the newest sample in (time - look_back_ms, time]."""
    last = samples.places(times_ms)
    held = last > samples.offsets[:-1, None]
    if not len(samples.values):
        return np.full(last.shape, np.nan), np.zeros(last.shape, np.int64), held
    place = np.maximum(last - 1, 0)
    values, found_ms = samples.values[place], samples.times_ms[place]
    held &= (found_ms > times_ms[None, :] - look_back_ms) & ~is_stale(values)
    return values, found_ms, held
