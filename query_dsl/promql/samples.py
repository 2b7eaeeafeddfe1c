"""Raw samples of labelled series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from artimon.compute.cells import Bools
from artimon.compute.packed_samples import PackedSamples
from query_dsl.promql.label_sets import LabelSets, concatenate


@dataclass(frozen=True, slots=True)
class SeriesSamples(PackedSamples):
    """Samples of the series `labels`. `dropped`: series whose name is to be removed from the result."""

    labels: LabelSets
    dropped: Bools


def no_samples() -> SeriesSamples:
    """Return no series."""
    return SeriesSamples(
        np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), LabelSets(0, {}), np.zeros(0, np.bool_)
    )


def unite_samples(parts: Sequence[SeriesSamples]) -> SeriesSamples:
    """Unite parts that may hold the same samples. A series keeps one value at a time, and a marker of an end behind
    it."""
    labels = concatenate([part.labels for part in parts])
    codes, first = labels.classes()
    starts = np.cumsum([0, *(part.labels.count for part in parts)])
    rows = [
        codes[start + np.repeat(np.arange(part.labels.count), np.diff(part.offsets))]
        for start, part in zip(starts.tolist(), parts, strict=False)
    ]
    row = np.concatenate(rows)
    times_ms = np.concatenate([part.times_ms for part in parts])
    values = np.concatenate([part.values for part in parts])
    ends = np.isnan(values)
    order = np.lexsort((ends, times_ms, row))
    differ = np.diff(row[order]) | np.diff(times_ms[order]) | np.diff(ends[order])
    order = order[np.concatenate((np.ones(min(1, len(order)), np.bool_), differ != 0))]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row[order], minlength=len(first))))).astype(np.int64)
    return SeriesSamples(offsets, times_ms[order], values[order], labels.take(first), np.zeros(len(first), np.bool_))
